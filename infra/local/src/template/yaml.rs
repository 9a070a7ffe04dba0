//! YAML with CloudFormation's short tags, as JSON with their long forms.

use saphyr::{LoadableYamlNode, Scalar, Yaml};
use serde_json::{Map, Value};

use super::TemplateError;

/// `!Ref X` becomes `{"Ref": "X"}`, `!Sub X` becomes `{"Fn::Sub": "X"}`, and so on for every other tag.
pub(super) fn to_json(text: &str) -> Result<Value, TemplateError> {
    let documents = Yaml::load_from_str(text).map_err(TemplateError::Yaml)?;
    documents.first().map_or(Ok(Value::Null), node)
}

fn node(yaml: &Yaml<'_>) -> Result<Value, TemplateError> {
    match yaml {
        Yaml::Value(scalar) => Ok(value(scalar)),
        Yaml::Sequence(elements) => elements.iter().map(node).collect(),
        Yaml::Mapping(entries) => {
            let mut object = Map::new();
            for (key, entry) in entries {
                object.insert(key_text(key)?, node(entry)?);
            }
            Ok(Value::Object(object))
        }
        Yaml::Tagged(tag, tagged) => {
            let name = match tag.suffix.as_str() {
                short @ ("Ref" | "Condition") => short.to_owned(),
                short => format!("Fn::{short}"),
            };
            Ok(Value::Object(Map::from_iter([(name, node(tagged)?)])))
        }
        Yaml::Representation(text, ..) => Ok(Value::String(text.to_string())),
        Yaml::Alias(_) | Yaml::BadValue => Err(unusable("an alias or a value that YAML cannot resolve")),
    }
}

fn value(scalar: &Scalar<'_>) -> Value {
    match scalar {
        Scalar::Null => Value::Null,
        Scalar::Boolean(value) => Value::Bool(*value),
        Scalar::Integer(value) => Value::from(*value),
        Scalar::FloatingPoint(value) => Value::from(value.into_inner()),
        Scalar::String(text) => Value::String(text.to_string()),
    }
}

fn key_text(key: &Yaml<'_>) -> Result<String, TemplateError> {
    match node(key)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(unusable("a key that is no text")),
    }
}

fn unusable(found: &str) -> TemplateError {
    TemplateError::Value {
        at: "YAML".to_owned(),
        found: Value::String(found.to_owned()),
        expected: "something that a template contains",
    }
}
