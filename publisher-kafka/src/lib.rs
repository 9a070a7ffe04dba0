//! The outbox's Kafka publisher, on librdkafka
