//! Mutations that keep JSON what it is. Bytes changed at random would seldom get past the parser.

mod vocabulary;

use outbox::Chance;
use serde_json::{Map, Value};

use vocabulary::{leaf, name, number};

/// The most levels: the parser takes fewer than 128.
const DEEPEST: usize = 120;

/// What the JSON is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Anything.
    Any,
    /// An item: an object, and each of its values has DynamoDB's type around it.
    Item,
}

/// A changed copy of some JSON, from one to four changes away; `None` if the bytes are no JSON, or what came of it has more
/// than `max` bytes or is nested too deep. `mutate_bytes` is what changes a text or a blob from within, to that many bytes at most: the
/// fuzzer, which knows what the code compares its input with.
pub fn mutated(
    shape: Shape,
    bytes: &[u8],
    max: usize,
    seed: u32,
    mutate_bytes: &mut dyn FnMut(&mut Vec<u8>, usize),
) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    let chance = Chance::seeded(seed.into());
    for _ in 0..=chance.below(4) {
        // Taken from anywhere, to be put anywhere: most of what is like a record is in the event already.
        let mut taken = chance.below(number_of_values(&value));
        let taken = pick(&mut value, &mut taken).map(|taken| taken.clone()).unwrap_or_default();
        let mut at = chance.below(number_of_values(&value));
        if let Some(place) = pick(&mut value, &mut at) {
            change(place, taken, &chance, max, mutate_bytes);
        }
    }
    if shape == Shape::Item {
        let fields = value.as_object_mut()?;
        fields.values_mut().for_each(retype);
    }
    if levels(&value) > DEEPEST {
        return None;
    }
    serde_json::to_vec(&value).ok().filter(|changed| changed.len() <= max)
}

fn levels(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(levels).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

/// The value as an attribute's: with its type around it, unless it has one.
fn typed(value: Value) -> Value {
    match value {
        Value::Null => of_type("NULL", true.into()),
        Value::Bool(_) => of_type("BOOL", value),
        Value::Number(number) => of_type("N", number.to_string().into()),
        Value::String(_) => of_type("S", value),
        Value::Array(values) => of_type("L", values.into_iter().map(typed).collect()),
        Value::Object(fields) => typed_object(fields),
    }
}

fn typed_object(mut fields: Map<String, Value>) -> Value {
    if fields.len() == 1
        && let Some((name, value)) = fields.iter_mut().next()
    {
        match (name.as_str(), value) {
            ("L", Value::Array(values)) => {
                values.iter_mut().for_each(retype);
                return Value::Object(fields);
            }
            ("M", Value::Object(inner)) => {
                inner.values_mut().for_each(retype);
                return Value::Object(fields);
            }
            _ => {}
        }
    }
    if is_attribute(&fields) {
        return Value::Object(fields);
    }
    fields.values_mut().for_each(retype);
    of_type("M", Value::Object(fields))
}

fn retype(value: &mut Value) {
    *value = typed(value.take());
}

/// (`json!` would copy the value, and those in it once more, and so on.)
fn of_type(name: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(name.to_owned(), value)]))
}

fn is_attribute(fields: &Map<String, Value>) -> bool {
    serde_json::from_value::<serde_dynamo::AttributeValue>(Value::Object(fields.clone())).is_ok()
}

/// How many values there are in this one, itself included.
fn number_of_values(value: &Value) -> u64 {
    let inner: u64 = match value {
        Value::Array(values) => values.iter().map(number_of_values).sum(),
        Value::Object(fields) => fields.values().map(number_of_values).sum(),
        _ => 0,
    };
    inner + 1
}

/// The value that stands at `at`, counted from the outermost on.
fn pick<'a>(value: &'a mut Value, at: &mut u64) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Array(values) => values.iter_mut().find_map(|value| pick(value, at)),
        Value::Object(fields) => fields.values_mut().find_map(|value| pick(value, at)),
        _ => None,
    }
}

fn change(
    place: &mut Value,
    taken: Value,
    chance: &Chance,
    max: usize,
    mutate_bytes: &mut dyn FnMut(&mut Vec<u8>, usize),
) {
    let name = || name(chance);
    match (chance.below(10), &mut *place) {
        (0, _) => *place = leaf(chance),
        (1, _) => *place = taken,
        (2, _) => {
            let levels = chance.below(if chance.below(8) == 0 { DEEPEST as u64 } else { 3 });
            for _ in 0..=levels {
                let inner = place.take();
                *place =
                    if chance.below(2) == 0 { Value::Array(vec![inner]) } else { of_type(&name(), inner) };
            }
        }
        (3..=5, Value::Array(values)) => change_list(values, taken, chance),
        (3..=5, Value::Object(fields)) => change_fields(fields, taken, name(), chance),
        (_, Value::Object(fields)) => mutate_blob(fields, max, mutate_bytes),
        (_, Value::String(text)) => {
            let mut bytes = std::mem::take(text).into_bytes();
            mutate_bytes(&mut bytes, max);
            *text = String::from_utf8_lossy(&bytes).into_owned();
        }
        (_, Value::Number(_)) => *place = number(chance),
        (_, Value::Array(values)) => {
            let more = values.clone();
            values.extend(more.into_iter().cycle().take(usize::try_from(chance.below(40)).unwrap_or(0)));
        }
        (_, other) => *other = leaf(chance),
    }
}

fn change_list(values: &mut Vec<Value>, taken: Value, chance: &Chance) {
    let at = |length: usize| usize::try_from(chance.below(length as u64)).unwrap_or(0);
    let (one, another) = (at(values.len()), at(values.len()));
    match chance.below(4) {
        0 => values.insert(one, taken),
        1 if !values.is_empty() => drop(values.remove(one)),
        2 if !values.is_empty() => values.swap(one, another),
        _ => values.push(leaf(chance)),
    }
}

fn change_fields(fields: &mut Map<String, Value>, taken: Value, name: String, chance: &Chance) {
    let there: Vec<String> = fields.keys().cloned().collect();
    let old = usize::try_from(chance.below(there.len() as u64)).ok().and_then(|at| there.get(at));
    match (chance.below(4), old) {
        (0, Some(old)) => drop(fields.remove(old)),
        (1, Some(old)) => {
            let value = fields.remove(old).unwrap_or_default();
            fields.insert(name, value);
        }
        (2, _) => drop(fields.insert(name, taken)),
        _ => drop(fields.insert(name, leaf(chance))),
    }
}

/// Changes what a binary attribute holds, and not its base64: `{"B": "..."}`.
fn mutate_blob(
    fields: &mut Map<String, Value>,
    max: usize,
    mutate_bytes: &mut dyn FnMut(&mut Vec<u8>, usize),
) {
    let attribute = serde_json::from_value(Value::Object(fields.clone()));
    let Ok(serde_dynamo::AttributeValue::B(mut blob)) = attribute else {
        return;
    };
    mutate_bytes(&mut blob, max);
    if let Ok(Value::Object(changed)) = serde_json::to_value(serde_dynamo::AttributeValue::B(blob)) {
        *fields = changed;
    }
}
