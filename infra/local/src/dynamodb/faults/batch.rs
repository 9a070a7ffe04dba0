//! A batch of which DynamoDB leaves a part.

use serde_json::{Map, Value, json};

/// A `BatchWriteItem` in two: what is carried out, and what is answered as unprocessed.
#[derive(Debug, PartialEq)]
pub(in super::super) struct Split {
    /// The request without what is left; `None`: nothing remains.
    pub(in super::super) request: Option<Vec<u8>>,
    left: Map<String, Value>,
}

impl Split {
    /// `None`: the request is nothing that could be divided.
    pub(super) fn of(body: &[u8], mut is_left: impl FnMut() -> bool) -> Option<Self> {
        let mut request: Value = serde_json::from_slice(body).ok()?;
        let mut left = Map::new();
        let tables = request.get_mut("RequestItems")?.as_object_mut()?;
        for (table, writes) in tables.iter_mut() {
            let all = std::mem::take(writes.as_array_mut()?);
            let (leave, carry_out): (Vec<_>, Vec<_>) = all.into_iter().partition(|_| is_left());
            *writes = carry_out.into();
            if !leave.is_empty() {
                left.insert(table.clone(), leave.into());
            }
        }
        // DynamoDB refuses a table without writes.
        tables.retain(|_, writes| writes.as_array().is_some_and(|writes| !writes.is_empty()));
        let request = if tables.is_empty() { None } else { Some(request.to_string().into_bytes()) };
        Some(Self { request, left })
    }

    /// The database's answer, with what was left added to what it left itself.
    pub(in super::super) fn answer(self, body: &[u8]) -> Vec<u8> {
        let mut answer: Value = serde_json::from_slice(body).unwrap_or_else(|_| json!({}));
        let unprocessed = &mut answer["UnprocessedItems"];
        if !unprocessed.is_object() {
            *unprocessed = json!({});
        }
        for (table, writes) in self.left {
            match (unprocessed[&table].as_array_mut(), writes) {
                (Some(there), Value::Array(writes)) => there.extend(writes),
                (_, writes) => unprocessed[&table] = writes,
            }
        }
        answer.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Vec<u8> {
        json!({"RequestItems": {"one": [1, 2, 3], "two": [4]}, "ReturnConsumedCapacity": "TOTAL"})
            .to_string()
            .into_bytes()
    }

    fn parsed(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn what_is_left_and_what_is_carried_out_are_the_whole() {
        let mut index = 0;
        let every_second = || {
            index += 1;
            index % 2 == 0
        };
        let split = Split::of(&batch(), every_second).unwrap();
        let request = parsed(split.request.as_deref().unwrap());
        assert_eq!(request, json!({"RequestItems": {"one": [1, 3]}, "ReturnConsumedCapacity": "TOTAL"}));
        let answer = parsed(&split.answer(br#"{"UnprocessedItems":{"one":[3]},"ConsumedCapacity":[]}"#));
        assert_eq!(answer, json!({"UnprocessedItems": {"one": [3, 2], "two": [4]}, "ConsumedCapacity": []}));
    }

    #[test]
    fn all_and_nothing() {
        let split = Split::of(&batch(), || true).unwrap();
        assert_eq!(split.request, None);
        assert_eq!(parsed(&split.answer(b"")), json!({"UnprocessedItems": {"one": [1, 2, 3], "two": [4]}}));
        let split = Split::of(&batch(), || false).unwrap();
        assert_eq!(parsed(split.request.as_deref().unwrap()), parsed(&batch()));
        assert_eq!(parsed(&split.answer(b"{}")), json!({"UnprocessedItems": {}}));
        assert_eq!(Split::of(b"nonsense", || true), None);
        assert_eq!(Split::of(b"{}", || true), None);
    }
}
