//! librdkafka's mock cluster, kept on a thread of its own: its handle may not change threads.

use std::sync::mpsc;

use rdkafka::error::KafkaError;
use rdkafka::mocking::MockCluster;
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::oneshot;

use super::error::{BrokerError, ClientError};

type Reply = oneshot::Sender<Result<(), KafkaError>>;

/// The mock's address and the way to its thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Mock {
    address: String,
    topics: mpsc::Sender<(String, i32, Reply)>,
}

impl Mock {
    /// Starts a mock cluster of one broker in this process; other processes can connect to it.
    pub(super) async fn start() -> Result<Self, BrokerError> {
        let (topics, wanted) = mpsc::channel::<(String, i32, Reply)>();
        let (started, address) = oneshot::channel();
        std::thread::Builder::new()
            .name("kafka-mock".into())
            .spawn(move || {
                let cluster = match MockCluster::new(1) {
                    Ok(cluster) => cluster,
                    Err(error) => {
                        let _ = started.send(Err(error));
                        return;
                    }
                };
                // A receiver that is gone is found out below: the other channel is then closed too.
                let _ = started.send(Ok(cluster.bootstrap_servers()));
                for (topic, partitions, reply) in wanted {
                    let _ = reply.send(cluster.create_topic(&topic, partitions, 1));
                }
            })
            .map_err(BrokerError::io("start a thread"))?;
        let address = address.await.map_err(|_| ClientError::TaskGone)?.map_err(BrokerError::Mock)?;
        Ok(Self { address, topics })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) async fn create_topic(&self, topic: &str, partitions: u32) -> Result<(), ClientError> {
        let count = i32::try_from(partitions)
            .map_err(|_| ClientError::Partitions { topic: topic.to_owned(), partitions })?;
        let (reply, created) = oneshot::channel();
        self.topics.send((topic.to_owned(), count, reply)).map_err(|_| ClientError::TaskGone)?;
        match created.await.map_err(|_| ClientError::TaskGone)? {
            Ok(()) | Err(KafkaError::MockCluster(RDKafkaErrorCode::TopicAlreadyExists)) => Ok(()),
            Err(source) => Err(ClientError::CreateTopic { topic: topic.to_owned(), source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rdkafka::ClientConfig;
    use rdkafka::producer::{FutureProducer, FutureRecord};

    use super::super::Reader;
    use super::*;

    #[tokio::test]
    async fn the_mock_keeps_a_record_for_a_reader() {
        let bound = Duration::from_secs(20);
        let mock = Mock::start().await.unwrap();
        mock.create_topic("orders", 2).await.unwrap();
        mock.create_topic("orders", 2).await.unwrap();
        let producer: FutureProducer =
            ClientConfig::new().set("bootstrap.servers", mock.address()).create().unwrap();
        producer.send(FutureRecord::to("orders").key("k").payload("v"), bound).await.unwrap();
        let reader = Reader::open(mock.address(), "orders").await.unwrap();
        let record = tokio::time::timeout(bound, reader.next()).await.unwrap().unwrap();
        assert_eq!(record.value.as_deref(), Some(b"v".as_slice()));
    }
}
