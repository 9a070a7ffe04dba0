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

/// What is done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing was stored: again later.
    Later,
    /// Nothing was stored, for want of the topic or partition: again later, and others are none the worse.
    TopicLater,
    /// As [`Self::TopicLater`]. The client remembers it, and gives it again without asking a broker.
    TopicUnknown,
    /// Nobody knows whether it was stored: again later.
    MaybeStored,
    /// One record of the batch, every time, and the broker does not say which: again, each alone. Alone: poison.
    PoisonInBatch,
    /// It shared a batch with the record at fault: again, alone.
    Bystander,
    /// Every record of this topic. The client remembers it, and gives it again without asking a broker.
    PoisonTopic,
    /// Every record, until somebody changes a setting or a permission.
    Misconfigured,
    /// The client's account of what is stored has failed: it is replaced. Nobody knows what was stored.
    Fatal,
    /// No producer gets it, as far as anybody knows. A guess must not lose a message or park a key for ever: it is kept,
    /// and tried again.
    NotOurs,
}

impl Answer {
    /// What the relay does about the message.
    pub(crate) const fn kind(self) -> PublishErrorKind {
        match self {
            Self::Later | Self::Bystander => PublishErrorKind::Unavailable,
            Self::TopicLater | Self::TopicUnknown => PublishErrorKind::TopicUnavailable,
            Self::MaybeStored | Self::Fatal | Self::NotOurs => PublishErrorKind::MayHaveHappened,
            Self::PoisonInBatch | Self::PoisonTopic => PublishErrorKind::Rejected,
            Self::Misconfigured => PublishErrorKind::Misconfigured,
        }
    }

    /// Whether the broker may have refused the message because of another in its batch.
    pub(crate) const fn refuses_the_batch(self) -> bool {
        matches!(self, Self::PoisonInBatch | Self::Bystander)
    }

    /// Whether the client is of no use to the next call: it would give it an old answer, or none.
    pub(crate) const fn replaces_the_client(self) -> bool {
        matches!(self, Self::TopicUnknown | Self::PoisonTopic | Self::Fatal)
    }
}

/// The answer to each code; `None`: nobody has decided.
///
/// A record may have been sent before: the client repeats what was lost or not answered, and an error is that of the last
/// attempt. "Nothing was stored" is therefore true of that attempt alone, and what is tried again may always come twice.
///
/// The names that begin with an underscore in librdkafka are the client's own; the others are the brokers'.
pub(crate) const fn decided(code: RDKafkaErrorCode) -> Option<Answer> {
    use RDKafkaErrorCode as Code;
    Some(match code {
        // The cluster, or the way to it.
        Code::BrokerNotAvailable
        | Code::UnknownBroker
        | Code::RebootstrapRequired
        | Code::WaitCache
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
        // The broker could not read the request, of which the message is but a part.
        | Code::InvalidRequest => Answer::Later,

        // A topic or partition that has nobody to take a record, or whose settings (its message format) forbid any.
        Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::FencedLeaderEpoch
        | Code::UnknownLeaderEpoch
        | Code::PreferredLeaderNotAvailable
        | Code::EligibleLeadersNotAvailable
        | Code::ReplicaNotAvailable
        | Code::ListenerNotFound
        | Code::NotEnoughReplicas
        | Code::ISRInsufficient
        | Code::KafkaStorageError
        | Code::LogDirNotFound
        | Code::UnsupportedForMessageFormat => Answer::TopicLater,

        // A topic or partition that is not there yet, or not there any more.
        Code::UnknownTopic
        | Code::UnknownPartition
        | Code::UnknownTopicOrPartition
        | Code::UnknownTopicId => Answer::TopicUnknown,

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
        | Code::Retry
        // An answer that cannot be read.
        | Code::BadMessage
        | Code::Underflow
        | Code::BrokerDestroy
        | Code::DestroyBroker
        | Code::Interrupted
        | Code::CriticalSystemResource
        | Code::Fail
        | Code::Unknown => Answer::MaybeStored,

        // The client measures each record by itself; brokers measure batches (the topic's max.message.bytes; segment.bytes),
        // and name the record that breaks a rule of its topic (a compacted one needs keys) only since Kafka 2.4.
        Code::MessageSizeTooLarge
        | Code::MessageBatchTooLarge
        | Code::InvalidRecord => Answer::PoisonInBatch,
        Code::InvalidDifferentRecord => Answer::Bystander,

        // A name that Kafka has no topic for (or, to brokers that make topics on first use, one too like another's).
        Code::InvalidTopic
        // The broker answers so every time until somebody grants a permission, and it says nothing of other topics: to call
        // it a misconfiguration would stop their messages in the same buckets. A missing topic looks the same to whoever may
        // not describe it. Hence "never" (design.md, section 8), for its own key: it is loud, and a message that waits is
        // tried again once a sweep, so that a grant is all it takes.
        | Code::TopicAuthorizationFailed => Answer::PoisonTopic,

        // Whom the brokers do not know or trust, or who may not write idempotently.
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
        | Code::DelegationTokenRequestNotAllowed
        | Code::DelegationTokenAuthorizationFailed
        | Code::DelegationTokenExpired
        | Code::UnacceptableCredential
        | Code::PrincipalDeserializationFailure
        // Settings that this client, or brokers this old, do not take.
        | Code::InvalidConfig
        | Code::InvalidRequiredAcks
        | Code::InvalidTransactionTimeout
        | Code::InvalidArgument
        | Code::NotConfigured
        | Code::NotImplemented
        | Code::UnknownProtocol
        | Code::UnsupportedFeature
        | Code::UnsupportedVersion
        | Code::UnsupportedCompressionType
        | Code::BadCompression => Answer::Misconfigured,

        // The broker's and the client's accounts of what was stored differ, or the client cannot go on without losing or
        // repeating something. (A duplicate is stored, but the client hides it: one that shows is an account gone wrong.)
        Code::Fatal
        | Code::OutOfOrderSequenceNumber
        | Code::DuplicateSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerIdMapping
        | Code::InvalidProducerEpoch
        | Code::ProducerFenced
        | Code::Fenced
        | Code::GaplessGuarantee
        | Code::Inconsistent => Answer::Fatal,

        // The client's own signals and its other duties.
        Code::Begin
        | Code::End
        | Code::EndAll
        | Code::NoError
        | Code::Noop
        | Code::Application
        | Code::Partial
        | Code::State
        | Code::Conflict
        | Code::InProgress
        | Code::PreviousInProgress
        | Code::NodeUpdate
        | Code::Outdated
        | Code::ReadOnly
        | Code::NoEnt
        | Code::InvalidType
        | Code::FileSystem
        | Code::KeySerialization
        | Code::ValueSerialization
        | Code::UnknownSubscriptionId
        | Code::TelemetryTooLarge
        // Consumers and groups.
        | Code::KeyDeserialization
        | Code::ValueDeserialization
        | Code::PartitionEOF
        | Code::AutoOffsetReset
        | Code::LogTruncation
        | Code::NoOffset
        | Code::ExistingSubscription
        | Code::AssignPartitions
        | Code::RevokePartitions
        | Code::AssignmentLost
        | Code::PollExceeded
        | Code::UnknownGroup
        | Code::OffsetOutOfRange
        | Code::OffsetNotAvailable
        | Code::OffsetMetadataTooLarge
        | Code::InvalidMessageSize
        | Code::InvalidCommitOffsetSize
        | Code::FetchSessionIdNotFound
        | Code::InvalidFetchSessionEpoch
        | Code::IllegalGeneration
        | Code::InconsistentGroupProtocol
        | Code::InvalidGroupId
        | Code::UnknownMemberId
        | Code::MemberIdRequired
        | Code::InvalidSessionTimeout
        | Code::RebalanceInProgress
        | Code::GroupAuthorizationFailed
        | Code::NonEmptyGroup
        | Code::GroupIdNotFound
        | Code::GroupMaxSizeReached
        | Code::GroupSubscribedToTopic
        | Code::FencedInstanceId
        | Code::UnreleasedInstanceId
        | Code::UnsupportedAssignor
        | Code::FencedMemberEpoch
        | Code::StaleMemberEpoch
        | Code::UnstableOffsetCommit
        // Coordinators and transactions.
        | Code::WaitingForCoordinator
        | Code::CoordinatorLoadInProgress
        | Code::CoordinatorNotAvailable
        | Code::NotCoordinator
        | Code::InvalidTransactionalState
        | Code::ConcurrentTransactions
        | Code::TransactionCoordinatorFenced
        | Code::OperationNotAttempted
        // Administration, and what brokers tell each other.
        | Code::TopicAlreadyExists
        | Code::InvalidPartitions
        | Code::InvalidReplicationFactor
        | Code::InvalidReplicaAssignment
        | Code::NotController
        | Code::StaleControllerEpoch
        | Code::StaleBrokerEpoch
        | Code::PolicyViolation
        | Code::ReassignmentInProgress
        | Code::NoReassignmentInProgress
        | Code::ElectionNotNeeded
        | Code::TopicDeletionDisabled
        | Code::InvalidPrincipalType
        | Code::ResourceNotFound
        | Code::DuplicateResource
        | Code::InconsistentVoterSet
        | Code::InvalidUpdateVersion
        | Code::FeatureUpdateFailed => Answer::NotOurs,

        // A later librdkafka's.
        _ => return None,
    })
}

/// The answer to `code`, also where nobody has decided.
pub(crate) const fn answer_to(code: RDKafkaErrorCode) -> Answer {
    match decided(code) {
        Some(answer) => answer,
        None => Answer::NotOurs,
    }
}

/// The answer to `error`.
pub(crate) fn answer_to_error(error: &KafkaError) -> Answer {
    // No code: the client could not even be asked, because of what it was given.
    error.rdkafka_error_code().map_or(Answer::Misconfigured, answer_to)
}

/// Whether a broker has refused a record or a batch for its size.
pub(crate) fn is_a_refused_size(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{MessageBatchTooLarge, MessageSizeTooLarge};
    matches!(error.rdkafka_error_code(), Some(MessageSizeTooLarge | MessageBatchTooLarge))
}

/// What an operator has to grant, where it is a permission that is missing.
pub(crate) const fn missing_permission(code: RDKafkaErrorCode) -> Option<&'static str> {
    match code {
        RDKafkaErrorCode::TopicAuthorizationFailed => Some(
            "the permission to write to the topic is missing: Write on it (MSK IAM: kafka-cluster:WriteData and \
             kafka-cluster:DescribeTopic)",
        ),
        RDKafkaErrorCode::ClusterAuthorizationFailed => Some(
            "the permission to write idempotently is missing: IdempotentWrite on the cluster, or since Kafka 2.8 Write on \
             any topic (MSK IAM: kafka-cluster:WriteDataIdempotently)",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    use PublishErrorKind::{MayHaveHappened, Misconfigured, Rejected, TopicUnavailable, Unavailable};
    use RDKafkaErrorCode as Code;
    use rdkafka::types::RDKafkaRespErr;

    /// Every code that this librdkafka has a name for. Brokers number theirs in 16 bits.
    fn known_codes() -> impl Iterator<Item = Code> {
        let numbers = i32::from(i16::MIN)..=i32::from(i16::MAX);
        numbers.filter_map(|number| RDKafkaRespErr::try_from(number).ok()).map(Code::from)
    }

    #[test]
    fn somebody_has_decided_on_every_code_that_there_is() {
        let undecided: Vec<Code> = known_codes().filter(|code| decided(*code).is_none()).collect();
        assert!(
            undecided.is_empty(),
            "a new librdkafka has codes that `decided` does not know, and that are kept and tried again until somebody \
             decides: {undecided:?}"
        );
        assert!(known_codes().count() > 150, "they were all looked at");
    }

    /// How many codes have each answer: one that changes its answer, or is new, is looked at by a person.
    #[test]
    fn the_answers_are_as_many_as_they_were() {
        let mut counts = BTreeMap::new();
        for code in known_codes() {
            *counts.entry(format!("{:?}", answer_to(code))).or_insert(0) += 1;
        }
        let poison = known_codes().filter(|code| answer_to(*code).kind() == Rejected);
        assert_eq!(
            poison.collect::<Vec<_>>(),
            [
                Code::MessageSizeTooLarge,
                Code::InvalidTopic,
                Code::MessageBatchTooLarge,
                Code::TopicAuthorizationFailed,
                Code::InvalidRecord
            ],
            "what parks a key, or moves messages to the quarantine"
        );
        println!("{counts:?}");
    }

    #[test]
    fn each_class_has_its_kind() {
        let table = [
            (Code::ThrottlingQuotaExceeded, Unavailable),
            (Code::QueueFull, Unavailable),
            (Code::Resolve, Unavailable),
            (Code::AllBrokersDown, Unavailable),
            (Code::InvalidTimestamp, Unavailable),
            (Code::InvalidDifferentRecord, Unavailable),
            (Code::UnknownTopic, TopicUnavailable),
            (Code::UnknownPartition, TopicUnavailable),
            (Code::UnknownTopicOrPartition, TopicUnavailable),
            (Code::LeaderNotAvailable, TopicUnavailable),
            (Code::NotEnoughReplicas, TopicUnavailable),
            (Code::KafkaStorageError, TopicUnavailable),
            (Code::UnsupportedForMessageFormat, TopicUnavailable),
            (Code::MessageTimedOut, MayHaveHappened),
            (Code::RequestTimedOut, MayHaveHappened),
            (Code::BrokerTransportFailure, MayHaveHappened),
            (Code::NotEnoughReplicasAfterAppend, MayHaveHappened),
            (Code::PurgeInflight, MayHaveHappened),
            (Code::PurgeQueue, MayHaveHappened),
            (Code::Fatal, MayHaveHappened),
            (Code::OutOfOrderSequenceNumber, MayHaveHappened),
            (Code::MessageSizeTooLarge, Rejected),
            (Code::InvalidRecord, Rejected),
            (Code::InvalidTopic, Rejected),
            (Code::TopicAuthorizationFailed, Rejected),
            (Code::Authentication, Misconfigured),
            (Code::SaslAuthenticationFailed, Misconfigured),
            (Code::ClusterAuthorizationFailed, Misconfigured),
            (Code::UnsupportedVersion, Misconfigured),
        ];
        for (code, kind) in table {
            assert_eq!(answer_to(code).kind(), kind, "{code:?}");
        }
    }

    #[test]
    fn a_code_that_no_producer_gets_keeps_the_message() {
        for code in known_codes().filter(|code| answer_to(*code) == Answer::NotOurs) {
            assert_eq!(answer_to(code).kind(), MayHaveHappened, "{code:?}");
            assert!(!answer_to(code).refuses_the_batch(), "{code:?}");
        }
        assert_eq!(answer_to(Code::UnknownMemberId), Answer::NotOurs);
    }

    #[test]
    fn an_error_without_a_code_is_a_fault_of_the_settings() {
        let error = KafkaError::ClientCreation("no such setting".to_owned());
        assert_eq!(answer_to_error(&error), Answer::Misconfigured);
    }

    #[test]
    fn a_refusal_of_a_batch_is_not_yet_one_of_a_record() {
        assert!(answer_to(Code::MessageSizeTooLarge).refuses_the_batch());
        assert!(answer_to(Code::InvalidDifferentRecord).refuses_the_batch());
        assert!(!answer_to(Code::TopicAuthorizationFailed).refuses_the_batch());
    }

    #[test]
    fn a_client_that_remembers_or_has_failed_is_replaced() {
        for (code, replaced) in [
            (Code::UnknownTopic, true),
            (Code::TopicAuthorizationFailed, true),
            (Code::OutOfOrderSequenceNumber, true),
            (Code::MessageSizeTooLarge, false),
            (Code::ThrottlingQuotaExceeded, false),
        ] {
            assert_eq!(answer_to(code).replaces_the_client(), replaced, "{code:?}");
        }
    }
}
