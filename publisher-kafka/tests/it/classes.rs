//! One error of each class, as a broker answers with it: what becomes of its message, of its key, and of the client.

use outbox::{PublishErrorKind, Publisher};
use outbox_publisher_kafka::Replaced;
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey as Api, RDKafkaRespErr as Code};

use crate::support::{PLENTY, assert_all_acknowledged, chain, failure, kinds, messages, publish, publisher};

use PublishErrorKind::{MayHaveHappened, Misconfigured, Rejected, TopicUnavailable, Unavailable};

#[tokio::test(flavor = "multi_thread")]
async fn each_class_of_answers_has_its_kind_and_the_next_call_goes_through() {
    let cluster = MockCluster::new(1).unwrap();
    let address = cluster.bootstrap_servers();
    for (n, (code, kind, replaced)) in [
        // Not now.
        (Code::RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED, Unavailable, None),
        (Code::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP, Unavailable, None),
        // Not this topic now.
        (Code::RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT, TopicUnavailable, None),
        (Code::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_ID, TopicUnavailable, Some(Replaced::Outdated)),
        // Nobody knows.
        (Code::RD_KAFKA_RESP_ERR_UNKNOWN, MayHaveHappened, None),
        // A code that no producer gets: kept, never poison.
        (Code::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID, MayHaveHappened, None),
        (Code::RD_KAFKA_RESP_ERR_POLICY_VIOLATION, MayHaveHappened, None),
        // Never, for this topic.
        (Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, Rejected, Some(Replaced::Outdated)),
        // Every message.
        (Code::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED, Misconfigured, None),
        (Code::RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION, Misconfigured, None),
        // The client is done for.
        (Code::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, MayHaveHappened, Some(Replaced::Fatal)),
    ]
    .into_iter()
    .enumerate()
    {
        let topic = format!("topic-{n}");
        cluster.create_topic(&topic, 1, 1).unwrap();
        let publisher = publisher(&address);
        let batch = messages(&topic, 2, 2);
        cluster.request_errors(Api::Produce, &[code]);
        let outcomes = publish(&publisher, &batch, PLENTY).await;
        assert_eq!(kinds(&outcomes), [Some(kind); 2], "{code:?}: {}", chain(failure(&outcomes[0])));
        assert_eq!(publisher.in_flight(), 0);
        for reason in Replaced::ALL {
            let expected = u64::from(replaced == Some(reason));
            assert_eq!(publisher.replaced(reason), expected, "{code:?}, {reason:?}");
        }
        assert_all_acknowledged(&publish(&publisher, &batch, PLENTY).await);
    }
}

/// What refuses a batch for one record of it, and does not say which.
#[tokio::test(flavor = "multi_thread")]
async fn what_refuses_a_batch_is_poison_for_the_record_that_it_refuses_alone() {
    for code in [
        Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
        Code::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE,
        Code::RD_KAFKA_RESP_ERR_INVALID_RECORD,
    ] {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("orders", 1, 1).unwrap();
        let publisher = publisher(&cluster.bootstrap_servers());
        // The batch, and then its first record alone.
        cluster.request_errors(Api::Produce, &[code, code]);
        let outcomes = publish(&publisher, &messages("orders", 3, 3), PLENTY).await;
        assert_eq!(kinds(&outcomes), [Some(Rejected), None, None], "{code:?}");
        assert_eq!(publisher.in_flight(), 0);
    }
}
