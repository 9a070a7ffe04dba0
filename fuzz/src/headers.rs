//! Header blobs: bytes that any writer can have put into an item.

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use outbox::headers::{Header, HeaderError, HeaderFault, decode, encode};

use crate::Input;
use crate::bounded::within;

/// Takes the bytes as a blob; and then as what to make headers from.
pub(crate) fn check(bytes: &[u8]) -> Input {
    check_blob(&Bytes::copy_from_slice(bytes));
    check_headers(&headers_from(bytes), bytes.len());
    Input::Checked
}

/// A blob is malformed, or it is exactly what its headers are encoded as.
fn check_blob(blob: &Bytes) {
    match bounded_decode(blob) {
        Ok(headers) => {
            let again = encode(&headers).expect("what was decoded can be encoded");
            assert_eq!(again, blob[..], "decoding and encoding changed the blob");
        }
        Err(error) => check_error(&error, blob),
    }
}

/// Headers survive; and a blob of them that is cut short or has something behind it is refused.
fn check_headers(headers: &[Header], chance: usize) {
    let blob = encode(headers).expect("there is not enough of them to be too large");
    assert_eq!(bounded_decode(&Bytes::copy_from_slice(&blob)).as_deref(), Ok(headers));

    let cut = Bytes::copy_from_slice(&blob[..chance % blob.len()]);
    check_error(&bounded_decode(&cut).expect_err("a blob that is cut short"), &cut);

    let longer: Bytes = blob.iter().copied().chain([0]).collect();
    let error = bounded_decode(&longer).expect_err("a blob with something behind it");
    assert_eq!(error.fault(), HeaderFault::Trailing);
}

/// A header takes 8 bytes of a blob at least and 56 of memory, and its key is copied; values are not.
fn bounded_decode(blob: &Bytes) -> Result<Vec<Header>, HeaderError> {
    within(8 * blob.len() + 64, || decode(blob))
}

/// An error says where, within the blob, and is a line of fixed words: there is no room in it for what the blob holds.
fn check_error(error: &HeaderError, blob: &Bytes) {
    let text = error.to_string();
    let at = text.rsplit_once(" at byte ").and_then(|(_, at)| at.parse().ok());
    assert!(at.is_some_and(|at: usize| at <= blob.len()), "{text}, in {} bytes", blob.len());
    assert!(text.len() <= 80, "{text}");
}

fn headers_from(bytes: &[u8]) -> Vec<Header> {
    let header = |(key, value): (String, Option<Vec<u8>>)| Header { key, value: value.map(Bytes::from) };
    let pairs = Vec::arbitrary(&mut Unstructured::new(bytes)).unwrap_or_default();
    pairs.into_iter().map(header).collect()
}
