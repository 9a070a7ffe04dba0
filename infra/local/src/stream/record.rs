//! A record of the stream's API, as Lambda shapes it for a function.

use aws_sdk_dynamodbstreams::types::{AttributeValue, Record};
use aws_smithy_types::base64;
use serde_json::{Map, Value, json};

/// The record as it stands in an event's `Records`.
pub(super) fn to_event(record: &Record, stream_arn: &str) -> Value {
    let mut event = json!({
        "eventID": record.event_id(),
        "eventName": record.event_name().map(|name| name.as_str()),
        "eventVersion": record.event_version().unwrap_or("1.1"),
        "eventSource": record.event_source().unwrap_or("aws:dynamodb"),
        "awsRegion": record.aws_region().unwrap_or("us-east-1"),
        "eventSourceARN": stream_arn,
    });
    if let Some(dynamodb) = record.dynamodb() {
        let mut change = Map::new();
        let mut insert = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                change.insert(name.to_owned(), value);
            }
        };
        insert(
            "ApproximateCreationDateTime",
            dynamodb.approximate_creation_date_time().map(|time| time.secs().into()),
        );
        insert("Keys", dynamodb.keys().map(item));
        insert("NewImage", dynamodb.new_image().map(item));
        insert("OldImage", dynamodb.old_image().map(item));
        insert("SequenceNumber", dynamodb.sequence_number().map(Value::from));
        insert("SizeBytes", dynamodb.size_bytes().map(Value::from));
        insert("StreamViewType", dynamodb.stream_view_type().map(|view| view.as_str().into()));
        event["dynamodb"] = change.into();
    }
    // Present when a TTL deleted the item.
    if let Some(identity) = record.user_identity() {
        event["userIdentity"] = json!({
            "type": identity.r#type(),
            "principalId": identity.principal_id(),
        });
    }
    event
}

fn item<'a>(attributes: impl IntoIterator<Item = (&'a String, &'a AttributeValue)>) -> Value {
    attributes.into_iter().map(|(name, value)| (name.clone(), attribute(value))).collect::<Map<_, _>>().into()
}

fn attribute(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::S(text) => json!({"S": text}),
        AttributeValue::N(number) => json!({"N": number}),
        AttributeValue::B(bytes) => json!({"B": base64::encode(bytes)}),
        AttributeValue::Ss(texts) => json!({"SS": texts}),
        AttributeValue::Ns(numbers) => json!({"NS": numbers}),
        AttributeValue::Bs(blobs) => json!({"BS": blobs.iter().map(base64::encode).collect::<Vec<_>>()}),
        AttributeValue::M(members) => json!({"M": item(members)}),
        AttributeValue::L(elements) => json!({"L": elements.iter().map(attribute).collect::<Vec<_>>()}),
        AttributeValue::Bool(flag) => json!({"BOOL": flag}),
        AttributeValue::Null(flag) => json!({"NULL": flag}),
        // A type that this SDK does not know yet; nobody's keys have it.
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodbstreams::types::{Identity, OperationType, StreamRecord, StreamViewType};
    use aws_smithy_types::{Blob, DateTime};

    use super::*;

    #[test]
    fn a_keys_only_insert_has_lambdas_shape() {
        let change = StreamRecord::builder()
            .approximate_creation_date_time(DateTime::from_secs(1_700_000_000))
            .keys("PK", AttributeValue::S("OUTBOX#MESSAGES#3".to_owned()))
            .keys("SK", AttributeValue::S("0000000000000000017".to_owned()))
            .sequence_number("100")
            .size_bytes(58)
            .stream_view_type(StreamViewType::KeysOnly)
            .build();
        let record = Record::builder()
            .event_id("1")
            .event_name(OperationType::Insert)
            .event_version("1.1")
            .event_source("aws:dynamodb")
            .aws_region("eu-west-1")
            .dynamodb(change)
            .build();
        assert_eq!(
            to_event(&record, "arn:stream"),
            json!({
                "eventID": "1",
                "eventName": "INSERT",
                "eventVersion": "1.1",
                "eventSource": "aws:dynamodb",
                "awsRegion": "eu-west-1",
                "dynamodb": {
                    "ApproximateCreationDateTime": 1_700_000_000,
                    "Keys": {"PK": {"S": "OUTBOX#MESSAGES#3"}, "SK": {"S": "0000000000000000017"}},
                    "SequenceNumber": "100",
                    "SizeBytes": 58,
                    "StreamViewType": "KEYS_ONLY"
                },
                "eventSourceARN": "arn:stream"
            })
        );
    }

    #[test]
    fn images_of_every_type_and_a_ttl_removal() {
        let list = AttributeValue::L(vec![AttributeValue::Null(true), AttributeValue::Bool(false)]);
        let change = StreamRecord::builder()
            .old_image("b", AttributeValue::B(Blob::new(*b"\x00\xff")))
            .old_image("bs", AttributeValue::Bs(vec![Blob::new(*b"x")]))
            .old_image("m", AttributeValue::M([("l".to_owned(), list)].into()))
            .old_image("n", AttributeValue::N("1.5".to_owned()))
            .old_image("ns", AttributeValue::Ns(vec!["1".to_owned()]))
            .old_image("ss", AttributeValue::Ss(vec!["a".to_owned()]))
            .build();
        let ttl = Identity::builder().r#type("Service").principal_id("dynamodb.amazonaws.com").build();
        let record =
            Record::builder().event_name(OperationType::Remove).dynamodb(change).user_identity(ttl).build();
        let event = to_event(&record, "arn:stream");
        assert_eq!(
            event["dynamodb"]["OldImage"],
            json!({
                "b": {"B": "AP8="},
                "bs": {"BS": ["eA=="]},
                "m": {"M": {"l": {"L": [{"NULL": true}, {"BOOL": false}]}}},
                "n": {"N": "1.5"},
                "ns": {"NS": ["1"]},
                "ss": {"SS": ["a"]}
            })
        );
        assert_eq!(
            event["userIdentity"],
            json!({"type": "Service", "principalId": "dynamodb.amazonaws.com"})
        );
        assert_eq!(event["eventName"], "REMOVE");
    }
}
