//! The outbox in DynamoDB: table, writer, messages, leases
