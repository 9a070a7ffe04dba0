//! The trace that a message belongs to, by its `traceparent` header (W3C Trace Context, level 1), so that a log line about
//! the message can be found from the trace.
//!
//! Headers pass to the record as they are: nothing here changes one.

use std::fmt;

use crate::Header;

/// The header's name.
const TRACEPARENT: &str = "traceparent";
/// What every version has: `00-` and 32 digits of the trace, 16 of the parent, 2 of flags.
const LENGTH: usize = 55;

/// A trace's identity. Not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

impl TraceId {
    /// That of a message with these headers, if the last `traceparent` among them is valid: the one that whoever reads the
    /// record goes by.
    pub fn of(headers: &[Header]) -> Option<Self> {
        let header = headers.iter().rfind(|header| header.key.eq_ignore_ascii_case(TRACEPARENT))?;
        Self::parse(header.value.as_deref()?)
    }

    /// That of a header's value. Of a long one no more is looked at than a valid one needs.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (fixed, rest) = value.split_at_checked(LENGTH)?;
        let part = |from: usize, to: usize| hex(&fixed[from..to]);
        let version = part(0, 2).filter(|version| *version != 0xff)?;
        // A later version may have more parts; this one has not.
        let ends = rest.is_empty() || (version > 0 && rest[0] == b'-');
        let dashes = [2, 35, 52].iter().all(|at| fixed[*at] == b'-');
        let (trace, parent, _flags) = (part(3, 35)?, part(36, 52)?, part(53, 55)?);
        (ends && dashes && trace != 0 && parent != 0).then_some(Self(trace.to_be_bytes()))
    }
}

/// As the header has it.
impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// At most 32 digits, in lower case as the format wants them.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const VALUE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(value: &str) -> Option<String> {
        TraceId::parse(value.as_bytes()).map(|trace| trace.to_string())
    }

    #[test]
    fn a_valid_value_gives_its_trace() {
        assert_eq!(read(VALUE).as_deref(), Some(TRACE));
        assert_eq!(read(&VALUE.replacen("00", "cc", 1)).as_deref(), Some(TRACE), "a later version");
        assert_eq!(read(&format!("01{}-what-comes", &VALUE[2..])).as_deref(), Some(TRACE));
        let small = VALUE.replace(TRACE, &format!("{:032x}", 7));
        assert_eq!(read(&small), Some(format!("{:032x}", 7)));
    }

    #[test]
    fn anything_else_gives_none() {
        for bad in [
            String::new(),
            VALUE[..54].to_owned(),
            format!("{VALUE}-00"),
            format!("{VALUE}0"),
            format!("01{}0", &VALUE[2..]),
            VALUE.replacen("00", "ff", 1),
            VALUE.replacen("00", "0x", 1),
            VALUE.to_uppercase(),
            VALUE.replace('-', "_"),
            VALUE.replace(TRACE, &"0".repeat(32)),
            VALUE.replace("b7ad6b7169203331", &"0".repeat(16)),
            VALUE.replace("-01", "-0g"),
            VALUE.replacen("0af7", "0aü7", 1),
        ] {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }

    #[test]
    fn of_several_headers_the_last_one_counts() {
        let other = VALUE.replace("0af7", "0bf7");
        let (first, last) = (Header::new("traceparent", other), Header::new("Traceparent", VALUE));
        let neighbour = Header::new("tracestate", "a=1");
        let of = |headers: &[Header]| TraceId::of(headers).map(|trace| trace.to_string());
        assert_eq!(of(&[first.clone(), last.clone(), neighbour.clone()]).as_deref(), Some(TRACE));
        assert_eq!(of(&[first, Header::null("traceparent")]), None);
        assert_eq!(of(&[neighbour]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = TraceId::parse(&value);
        }

        #[test]
        fn every_trace_is_read_back(trace in 1..=u128::MAX, parent in 1..=u64::MAX, flags: u8) {
            let value = format!("00-{trace:032x}-{parent:016x}-{flags:02x}");
            prop_assert_eq!(TraceId::parse(value.as_bytes()), Some(TraceId(trace.to_be_bytes())));
        }
    }
}
