//! The header blob (design.md, section 4).
//!
//! Byte version 1; int32 count; per header: int32 key length, key in UTF-8, int32 value length or -1 for null,
//! value. Integers are little-endian. Frozen: other writers and relays read the same bytes.

use bytes::Bytes;

const VERSION: u8 = 1;
/// What the shortest header takes: a key length and a value length.
const SHORTEST_HEADER: usize = 8;

/// One record header. Kafka allows a key to occur more than once, and keeps the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The header's name.
    pub key: String,
    /// Its value; `None` is Kafka's null, which is not an empty value.
    pub value: Option<Bytes>,
}

impl Header {
    /// A header with a value.
    pub fn new(key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), value: Some(value.into()) }
    }

    /// A header whose value is null.
    pub fn null(key: impl Into<String>) -> Self {
        Self { key: key.into(), value: None }
    }
}

/// Why a header blob is malformed, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed header blob: {fault} at byte {at}")]
pub struct HeaderError {
    fault: HeaderFault,
    at: usize,
}

impl HeaderError {
    /// What is wrong.
    pub const fn fault(&self) -> HeaderFault {
        self.fault
    }
}

/// What can be wrong with a header blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderFault {
    /// The version byte is missing or is not 1.
    #[error("missing or unknown version")]
    Version,
    /// A length or the count is cut off.
    #[error("truncated")]
    Truncated,
    /// The count is negative, or larger than the bytes that follow could hold.
    #[error("impossible count")]
    Count,
    /// A key length is negative or reaches past the end.
    #[error("impossible key length")]
    KeyLength,
    /// A value length is below -1 or reaches past the end.
    #[error("impossible value length")]
    ValueLength,
    /// A key is not UTF-8.
    #[error("key is not UTF-8")]
    KeyNotUtf8,
    /// Bytes follow the last header.
    #[error("trailing bytes")]
    Trailing,
    /// More than 2³¹−1 headers, or a key or value of more bytes than that: no blob can hold them.
    #[error("too large to encode")]
    TooLarge,
}

/// Encodes headers. Writers leave the attribute out when there are none.
///
/// # Errors
/// [`HeaderFault::TooLarge`] if a count or length does not fit in an int32.
pub fn encode(headers: &[Header]) -> Result<Vec<u8>, HeaderError> {
    let mut blob = vec![VERSION];
    put_length(&mut blob, headers.len())?;
    for header in headers {
        put_length(&mut blob, header.key.len())?;
        blob.extend_from_slice(header.key.as_bytes());
        match &header.value {
            Some(value) => {
                put_length(&mut blob, value.len())?;
                blob.extend_from_slice(value);
            }
            None => blob.extend_from_slice(&(-1_i32).to_le_bytes()),
        }
    }
    Ok(blob)
}

fn put_length(blob: &mut Vec<u8>, length: usize) -> Result<(), HeaderError> {
    let length =
        i32::try_from(length).map_err(|_| HeaderError { fault: HeaderFault::TooLarge, at: blob.len() })?;
    blob.extend_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Decodes a header blob. Nothing is allocated for more than the blob can hold.
///
/// # Errors
/// Says what is malformed and where.
pub fn decode(blob: &Bytes) -> Result<Vec<Header>, HeaderError> {
    let mut reader = Reader { blob, at: 0 };
    if reader.take(1).is_none_or(|version| version[0] != VERSION) {
        return Err(HeaderError { fault: HeaderFault::Version, at: 0 });
    }
    let count = reader.int32()?;
    let count = usize::try_from(count).ok().filter(|count| *count <= reader.left() / SHORTEST_HEADER);
    let count = count.ok_or(HeaderError { fault: HeaderFault::Count, at: 1 })?;
    let mut headers = Vec::with_capacity(count);
    for _ in 0..count {
        let at = reader.at;
        let key = reader.int32()?;
        let key = usize::try_from(key).ok().and_then(|length| reader.take(length));
        let key = key.ok_or(HeaderError { fault: HeaderFault::KeyLength, at })?;
        let key = std::str::from_utf8(&key)
            .map_err(|_| HeaderError { fault: HeaderFault::KeyNotUtf8, at })?
            .to_owned();
        let at = reader.at;
        let value = match reader.int32()? {
            -1 => None,
            length => {
                let value = usize::try_from(length).ok().and_then(|length| reader.take(length));
                Some(value.ok_or(HeaderError { fault: HeaderFault::ValueLength, at })?)
            }
        };
        headers.push(Header { key, value });
    }
    if reader.left() > 0 {
        return Err(HeaderError { fault: HeaderFault::Trailing, at: reader.at });
    }
    Ok(headers)
}

struct Reader<'a> {
    blob: &'a Bytes,
    at: usize,
}

impl Reader<'_> {
    fn left(&self) -> usize {
        self.blob.len() - self.at
    }

    /// The next `length` bytes, or nothing if there are fewer.
    fn take(&mut self, length: usize) -> Option<Bytes> {
        if length > self.left() {
            return None;
        }
        let taken = self.blob.slice(self.at..self.at + length);
        self.at += length;
        Some(taken)
    }

    fn int32(&mut self) -> Result<i32, HeaderError> {
        let at = self.at;
        let bytes = self.take(4).ok_or(HeaderError { fault: HeaderFault::Truncated, at })?;
        Ok(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> impl Strategy<Value = Header> {
        (any::<String>(), proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)))
            .prop_map(|(key, value)| Header { key, value: value.map(Bytes::from) })
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(headers in proptest::collection::vec(header(), 0..20)) {
            let blob = Bytes::from(encode(&headers).unwrap());
            prop_assert_eq!(decode(&blob).unwrap(), headers);
        }

        #[test]
        fn any_bytes_are_decoded_or_refused(blob in proptest::collection::vec(any::<u8>(), 0..200)) {
            let blob = Bytes::from(blob);
            if let Ok(headers) = decode(&blob) {
                prop_assert_eq!(Bytes::from(encode(&headers).unwrap()), blob);
            }
        }

        #[test]
        fn a_blob_cut_short_is_refused(headers in proptest::collection::vec(header(), 1..5), keep in 0.0..1.0_f64) {
            let blob = encode(&headers).unwrap();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share of a small length")]
            let cut = (blob.len() as f64 * keep) as usize;
            prop_assert!(decode(&Bytes::copy_from_slice(&blob[..cut])).is_err());
        }
    }
}
