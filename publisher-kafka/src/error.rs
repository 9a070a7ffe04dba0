//! What each of the client's and the brokers' errors means for a message.

use outbox::PublishErrorKind;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

/// The Kafka client could not be created: a fault of its build or of its settings.
#[derive(Debug, thiserror::Error)]
#[error("the Kafka client for {servers} (KAFKA_BOOTSTRAP_SERVERS) could not be created")]
pub struct ClientError {
    pub(crate) servers: String,
    #[source]
    pub(crate) source: KafkaError,
}

/// What becomes of a message that failed with `error`.
pub(crate) fn kind_of_error(error: &KafkaError) -> PublishErrorKind {
    match error.rdkafka_error_code() {
        Some(code) => kind_of(code),
        // No code: the client could not even be asked, because of what it was given.
        None => PublishErrorKind::Misconfigured,
    }
}

/// What becomes of a message that failed with `code`.
///
/// The name that begins with an underscore in librdkafka is the client's own; the others are the broker's.
pub(crate) fn kind_of(code: RDKafkaErrorCode) -> PublishErrorKind {
    use PublishErrorKind::{MayHaveHappened, Misconfigured, Rejected, TopicUnavailable, Unavailable};
    use RDKafkaErrorCode as Code;
    match code {
        // This topic, or a partition of it, is not there yet or has nobody to take a record: others are none the worse.
        Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicOrPartition
        | Code::UnknownTopicId
        | Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::FencedLeaderEpoch
        | Code::UnknownLeaderEpoch
        | Code::PreferredLeaderNotAvailable
        | Code::EligibleLeadersNotAvailable
        | Code::ReplicaNotAvailable
        | Code::NotEnoughReplicas => TopicUnavailable,

        // Not now: nothing was stored.
        Code::BrokerNotAvailable
        | Code::ListenerNotFound
        | Code::UnknownBroker
        | Code::RebootstrapRequired
        | Code::KafkaStorageError
        | Code::LogDirNotFound
        | Code::ThrottlingQuotaExceeded
        | Code::QueueFull
        | Code::TimedOutQueue
        | Code::Resolve
        | Code::AllBrokersDown
        // A handshake fails for good, or because the network did: what tells them apart is the client's own words.
        | Code::SSL
        // Damaged on its way.
        | Code::InvalidMessage
        // The record carries the time of publishing: it is a clock that is wrong, not the message.
        | Code::InvalidTimestamp
        // It shared a batch with the record at fault.
        | Code::InvalidDifferentRecord
        // Refused by a client that had failed before it was given the message.
        | Code::Fatal => Unavailable,

        // Sent, and no answer that says what became of it.
        Code::MessageTimedOut
        | Code::OperationTimedOut
        | Code::RequestTimedOut
        | Code::BrokerTransportFailure
        | Code::NetworkException
        | Code::NotEnoughReplicasAfterAppend
        | Code::PurgeInflight
        // It waited in the queue, perhaps for another attempt: the first one may have been stored.
        | Code::PurgeQueue
        | Code::BadMessage
        | Code::BrokerDestroy
        | Code::DestroyBroker
        | Code::Interrupted
        // The broker's and the client's accounts of what was stored differ.
        | Code::OutOfOrderSequenceNumber
        | Code::DuplicateSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerIdMapping
        | Code::InvalidProducerEpoch
        | Code::ProducerFenced
        | Code::Fenced
        | Code::GaplessGuarantee
        | Code::Inconsistent
        | Code::Unknown => MayHaveHappened,

        // This record, every time.
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidRecord
        | Code::InvalidTopic
        | Code::TopicAuthorizationFailed
        | Code::UnsupportedForMessageFormat => Rejected,

        // Every record, until somebody changes something.
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::IllegalSASLState
        | Code::SecurityDisabled
        | Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::DelegationTokenAuthDisabled
        | Code::DelegationTokenNotFound
        | Code::DelegationTokenOwnerMismatch
        | Code::DelegationTokenAuthorizationFailed
        | Code::DelegationTokenExpired
        | Code::UnacceptableCredential
        | Code::PrincipalDeserializationFailure
        | Code::InvalidConfig
        | Code::InvalidRequiredAcks
        | Code::InvalidArgument
        | Code::NotConfigured
        | Code::NotImplemented
        | Code::UnknownProtocol
        | Code::UnsupportedFeature
        | Code::UnsupportedVersion
        | Code::UnsupportedCompressionType
        | Code::BadCompression => Misconfigured,

        // Errors of consumers, groups, transactions and administration, and those that are not invented yet. A guess
        // must not lose a message or park a key for ever: it is kept, and tried again.
        _ => MayHaveHappened,
    }
}

/// Whether the broker may have refused the message because of another in its batch.
pub(crate) fn refuses_the_batch(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::MessageSizeTooLarge
                | Code::MessageBatchTooLarge
                | Code::InvalidRecord
                | Code::InvalidDifferentRecord
        )
    )
}

/// Whether the error comes of what a client remembers about a topic, and gives again without asking a broker.
pub(crate) fn is_remembered(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::UnknownTopic
                | Code::UnknownTopicOrPartition
                | Code::UnknownTopicId
                | Code::UnknownPartition
                | Code::TopicAuthorizationFailed
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    use PublishErrorKind::{MayHaveHappened, Misconfigured, Rejected, TopicUnavailable, Unavailable};
    use RDKafkaErrorCode as Code;

    #[test]
    fn each_error_has_one_of_the_answers() {
        let table = [
            (Code::UnknownTopic, TopicUnavailable),
            (Code::UnknownPartition, TopicUnavailable),
            (Code::UnknownTopicOrPartition, TopicUnavailable),
            (Code::UnknownTopicId, TopicUnavailable),
            (Code::LeaderNotAvailable, TopicUnavailable),
            (Code::NotLeaderForPartition, TopicUnavailable),
            (Code::NotEnoughReplicas, TopicUnavailable),
            (Code::KafkaStorageError, Unavailable),
            (Code::ThrottlingQuotaExceeded, Unavailable),
            (Code::QueueFull, Unavailable),
            (Code::Resolve, Unavailable),
            (Code::AllBrokersDown, Unavailable),
            (Code::InvalidTimestamp, Unavailable),
            (Code::InvalidDifferentRecord, Unavailable),
            (Code::Fatal, Unavailable),
            (Code::MessageTimedOut, MayHaveHappened),
            (Code::RequestTimedOut, MayHaveHappened),
            (Code::BrokerTransportFailure, MayHaveHappened),
            (Code::NotEnoughReplicasAfterAppend, MayHaveHappened),
            (Code::PurgeInflight, MayHaveHappened),
            (Code::PurgeQueue, MayHaveHappened),
            (Code::OutOfOrderSequenceNumber, MayHaveHappened),
            (Code::InvalidProducerEpoch, MayHaveHappened),
            (Code::UnknownProducerId, MayHaveHappened),
            (Code::MessageSizeTooLarge, Rejected),
            (Code::MessageBatchTooLarge, Rejected),
            (Code::InvalidRecord, Rejected),
            (Code::InvalidTopic, Rejected),
            (Code::TopicAuthorizationFailed, Rejected),
            (Code::Authentication, Misconfigured),
            (Code::SaslAuthenticationFailed, Misconfigured),
            (Code::ClusterAuthorizationFailed, Misconfigured),
            (Code::UnsupportedVersion, Misconfigured),
            (Code::UnsupportedFeature, Misconfigured),
        ];
        for (code, kind) in table {
            assert_eq!(kind_of(code), kind, "{code:?}");
        }
    }

    #[test]
    fn an_unknown_code_keeps_the_message() {
        assert_eq!(kind_of(Code::UnknownMemberId), MayHaveHappened);
        assert_eq!(kind_of(Code::Unknown), MayHaveHappened);
    }

    #[test]
    fn an_error_without_a_code_is_a_fault_of_the_settings() {
        let error = KafkaError::ClientCreation("no such setting".to_owned());
        assert_eq!(kind_of_error(&error), Misconfigured);
    }

    #[test]
    fn a_refusal_of_a_batch_is_not_yet_one_of_a_record() {
        assert!(refuses_the_batch(&KafkaError::MessageProduction(Code::MessageSizeTooLarge)));
        assert!(!refuses_the_batch(&KafkaError::MessageProduction(Code::TopicAuthorizationFailed)));
    }
}
