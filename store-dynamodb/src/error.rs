//! What an SDK error means for whoever called: decided here, by name, once.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use outbox::headers::HeaderError;
use outbox::{Bucket, MessageError, MessageId, StoreError, StoreErrorKind};

use crate::{Sequence, StoreOptions};

/// Why messages were not written. Unless it says otherwise, nothing was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A message that no broker would ever take.
    #[error("a message was refused")]
    Message(#[from] MessageError),
    /// Headers that no blob can hold.
    #[error("the headers of message {id} cannot be encoded")]
    Headers {
        /// The message.
        id: MessageId,
        /// What is wrong with them.
        source: HeaderError,
    },
    /// An item larger than DynamoDB takes.
    #[error("message {id} makes an item of {size} bytes, {} over DynamoDB's limit of {limit}", .size - .limit)]
    ItemTooLarge {
        /// The message.
        id: MessageId,
        /// The item's size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// More messages than one transaction holds.
    #[error("{count} messages are {} over DynamoDB's limit of {limit} items a transaction", .count - .limit)]
    TooMany {
        /// How many there were.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// More bytes than one transaction holds.
    #[error("the messages make {size} bytes, {} over DynamoDB's limit of {limit} a transaction; message {id} is the first that does not fit", .size - .limit)]
    TransactionTooLarge {
        /// The first message that does not fit.
        id: MessageId,
        /// The size of all of them in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The place of a message is taken by another: the bucket's sequence counter was reset, restored or deleted.
    /// Nothing was overwritten.
    #[error(
        "number {sequence} of bucket {bucket} is taken by another message: the bucket's sequence counter is behind its messages"
    )]
    SequenceTaken {
        /// The bucket.
        bucket: Bucket,
        /// The number.
        sequence: Sequence,
    },
    /// The store failed. With [`StoreErrorKind::MayHaveHappened`] the messages may have been written.
    #[error("the messages were not written")]
    Store(#[from] StoreError),
}

impl WriteError {
    /// Whether the same call may succeed if it is made again.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if !error.is_misconfiguration())
    }
}

/// Whether a request changes anything: a read that was not answered can simply be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Writes,
}

/// Turns a failed request into the store's error. `what` says what it was for.
pub(crate) fn store_error<E>(
    options: &StoreOptions,
    effect: Effect,
    what: &str,
    error: SdkError<E, HttpResponse>,
) -> StoreError
where
    E: std::error::Error + ProvideErrorMetadata + Send + Sync + 'static,
{
    let unanswered = match effect {
        Effect::Reads => StoreErrorKind::Unavailable,
        Effect::Writes => StoreErrorKind::MayHaveHappened,
    };
    let table = &options.table_name;
    let (kind, hint) = match &error {
        SdkError::ConstructionFailure(_) => (StoreErrorKind::Misconfigured, String::new()),
        SdkError::TimeoutError(_) => {
            let hint =
                ": no answer in time; a function in a VPC needs a route to DynamoDB (a gateway endpoint)";
            (unanswered, hint.to_owned())
        }
        SdkError::DispatchFailure(failure) if failure.is_user() => {
            (StoreErrorKind::Misconfigured, String::new())
        }
        // Nobody took the connection: nothing was sent.
        SdkError::DispatchFailure(_) if was_refused(&error) => (StoreErrorKind::Unavailable, String::new()),
        // A connection that breaks while a request is on it says nothing of what became of the request.
        SdkError::DispatchFailure(_) | SdkError::ResponseError(_) => (unanswered, String::new()),
        SdkError::ServiceError(error) => {
            let code = error.err().code().unwrap_or_default();
            (service_error(code, error.raw().status().as_u16(), unanswered), hint(options, code))
        }
        _ => (unanswered, String::new()),
    };
    StoreError::new(kind, format!("{what} of table {table:?} failed{hint}")).because(error)
}

/// Whether the address refused the connection, somewhere down the chain of causes.
fn was_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>()).any(|error| {
        matches!(error.kind(), std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::HostUnreachable)
    })
}

/// The kinds of DynamoDB's error codes. An unknown code with a server's status may have happened; an unknown code
/// that blames the request will be refused again.
fn service_error(code: &str, status: u16, unanswered: StoreErrorKind) -> StoreErrorKind {
    match code {
        "ProvisionedThroughputExceededException"
        | "ThrottlingException"
        | "Throttling"
        | "RequestLimitExceeded"
        | "LimitExceededException" => StoreErrorKind::Throttled,
        "TransactionConflictException"
        | "TransactionInProgressException"
        | "TransactionCanceledException"
        | "ReplicatedWriteConflictException"
        | "ServiceUnavailable"
        | "ServiceUnavailableException"
        | "RequestExpired"
        | "ExpiredTokenException"
        | "ExpiredToken" => StoreErrorKind::Unavailable,
        "InternalServerError" | "InternalFailure" => unanswered,
        "ResourceNotFoundException"
        | "TableNotFoundException"
        | "ValidationException"
        | "ValidationError"
        | "AccessDeniedException"
        | "UnrecognizedClientException"
        | "MissingAuthenticationTokenException"
        | "MissingAuthenticationToken"
        | "IncompleteSignatureException"
        | "InvalidSignatureException"
        | "IdempotentParameterMismatchException" => StoreErrorKind::Misconfigured,
        _ if status >= 500 => unanswered,
        _ => StoreErrorKind::Misconfigured,
    }
}

/// What to look at, for codes that somebody has to act on.
fn hint(options: &StoreOptions, code: &str) -> String {
    match code {
        "ResourceNotFoundException" | "TableNotFoundException" => {
            ": there is no such table in this account and region; check OUTBOX_TABLE_NAME".to_owned()
        }
        "ValidationException" | "ValidationError" => format!(
            ": its keys must be two strings named {:?} and {:?}; check OUTBOX_PARTITION_KEY_ATTRIBUTE and \
             OUTBOX_SORT_KEY_ATTRIBUTE",
            options.partition_key_attribute, options.sort_key_attribute
        ),
        "AccessDeniedException" => ": the function's role must allow it".to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_code_has_its_kind() {
        use StoreErrorKind::{MayHaveHappened, Misconfigured, Throttled, Unavailable};
        for (code, status, kind) in [
            ("ProvisionedThroughputExceededException", 400, Throttled),
            ("ThrottlingException", 400, Throttled),
            ("RequestLimitExceeded", 400, Throttled),
            ("TransactionConflictException", 400, Unavailable),
            ("TransactionInProgressException", 400, Unavailable),
            ("TransactionCanceledException", 400, Unavailable),
            ("ServiceUnavailable", 503, Unavailable),
            ("ExpiredTokenException", 400, Unavailable),
            ("InternalServerError", 500, MayHaveHappened),
            ("ResourceNotFoundException", 400, Misconfigured),
            ("ValidationException", 400, Misconfigured),
            ("AccessDeniedException", 400, Misconfigured),
            ("UnrecognizedClientException", 400, Misconfigured),
            ("InvalidSignatureException", 400, Misconfigured),
            ("SomethingNew", 500, MayHaveHappened),
            ("SomethingNew", 400, Misconfigured),
            ("", 502, MayHaveHappened),
        ] {
            assert_eq!(service_error(code, status, MayHaveHappened), kind, "{code} {status}");
        }
        assert_eq!(service_error("InternalServerError", 500, Unavailable), Unavailable, "reads are repeated");
    }
}
