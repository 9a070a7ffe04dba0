//! Whether a record is what a pattern describes.

use serde_json::Value;

use super::{Comparison, FieldPattern, Matcher, ObjectPattern};

impl ObjectPattern {
    pub(super) fn matches(&self, value: &Value) -> bool {
        // A list of objects matches if one of them does.
        if let Value::Array(elements) = value {
            return elements.iter().any(|element| self.matches(element));
        }
        // A field that is missing is looked at all the same: its absence may be what is asked for.
        self.fields.iter().all(|(name, pattern)| pattern.matches(value.get(name)))
            && self.either.iter().all(|branches| branches.iter().any(|branch| branch.matches(value)))
    }
}

impl FieldPattern {
    fn matches(&self, value: Option<&Value>) -> bool {
        match self {
            Self::Object(pattern) => pattern.matches(value.unwrap_or(&Value::Null)),
            Self::Alternatives(matchers) => {
                let leaves = leaves(value);
                matchers.iter().any(|matcher| match matcher {
                    Matcher::Exists(exists) => *exists != leaves.is_empty(),
                    other => leaves.iter().any(|leaf| other.matches(leaf)),
                })
            }
        }
    }
}

/// The values at a field that are neither list nor object; a list stands for its elements.
fn leaves(value: Option<&Value>) -> Vec<&Value> {
    match value {
        None | Some(Value::Object(_)) => Vec::new(),
        Some(Value::Array(elements)) => elements.iter().flat_map(|element| leaves(Some(element))).collect(),
        Some(leaf) => vec![leaf],
    }
}

impl Matcher {
    fn matches(&self, leaf: &Value) -> bool {
        match self {
            Self::Null => leaf.is_null(),
            Self::Bool(expected) => leaf.as_bool() == Some(*expected),
            Self::Number(expected) => leaf.as_f64() == Some(*expected),
            Self::Text(expected) => leaf.as_str() == Some(expected),
            Self::Prefix(prefix) => leaf.as_str().is_some_and(|text| text.starts_with(prefix)),
            Self::Suffix(suffix) => leaf.as_str().is_some_and(|text| text.ends_with(suffix)),
            Self::IgnoreCase(expected) => {
                leaf.as_str().is_some_and(|text| text.to_lowercase() == expected.to_lowercase())
            }
            Self::Numeric(comparisons) => leaf.as_f64().is_some_and(|number| {
                comparisons.iter().all(|(comparison, bound)| comparison.holds(number, *bound))
            }),
            Self::Exists(exists) => *exists,
            Self::AnythingBut(matchers) => !matchers.iter().any(|matcher| matcher.matches(leaf)),
        }
    }
}

impl Comparison {
    fn holds(self, number: f64, bound: f64) -> bool {
        match self {
            Self::Equal => number == bound,
            Self::Less => number < bound,
            Self::LessOrEqual => number <= bound,
            Self::Greater => number > bound,
            Self::GreaterOrEqual => number >= bound,
        }
    }
}
