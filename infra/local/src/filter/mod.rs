//! Lambda's event filter: which stream records reach the function.
//!
//! A pattern is JSON in the shape of the record. Objects nest, lists hold the alternatives of one field:
//!
//! ```
//! use outbox_local::filter::Filter;
//! use serde_json::json;
//!
//! let pattern = r#"{"eventName": ["INSERT"], "dynamodb": {"Keys": {"PK": {"S": [{"prefix": "OUTBOX#"}]}}}}"#;
//! let filter = Filter::parse(&[pattern])?;
//! let record = json!({"eventName": "INSERT", "dynamodb": {"Keys": {"PK": {"S": "OUTBOX#MESSAGES#3"}}}});
//! assert!(filter.matches(&record));
//! # Ok::<(), outbox_local::filter::FilterError>(())
//! ```
//!
//! Nothing in the deployment tools catches a malformed pattern, and a wrongly nested one matches everything or
//! nothing. So parsing is strict, and knows no operator that Lambda does not know.

mod matching;
mod parse;
#[cfg(test)]
mod tests;

use serde_json::Value;

/// The filters of one event source mapping. A record passes if any pattern matches it, or if there is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Filter {
    patterns: Vec<ObjectPattern>,
}

/// Why a filter is refused: where in which pattern, and what is wrong there.
#[derive(Debug, thiserror::Error)]
#[error("filter {number} is malformed at {path}")]
pub struct FilterError {
    /// Which of the filters, counted from 1.
    pub number: usize,
    /// The field in the pattern, such as `dynamodb.Keys.PK`; `$` is the whole pattern.
    pub path: String,
    /// What is wrong.
    #[source]
    pub problem: FilterProblem,
}

/// What can be wrong with a pattern.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterProblem {
    /// It is no JSON.
    #[error("it is not JSON")]
    Json(#[source] serde_json::Error),
    /// Longer than Lambda takes, in bytes.
    #[error("{0} bytes are more than the 4096 that Lambda takes")]
    TooLong(usize),
    /// The whole pattern is not an object.
    #[error("a pattern is an object")]
    NotAnObject,
    /// An object without fields, which would match everything.
    #[error("an empty object matches nothing in particular")]
    EmptyObject,
    /// A list without alternatives, which would match nothing.
    #[error("an empty list has no alternative")]
    EmptyList,
    /// A value that stands alone: the field's alternatives must be in a list.
    #[error("a value must be in a list, as in [{0}]")]
    BareValue(Value),
    /// A list within a list.
    #[error("an alternative is a string, a number, true, false, null or an object with one operator")]
    NotAnAlternative,
    /// An object with several operators, or none.
    #[error("an alternative has exactly one operator, this one has {0}")]
    OperatorCount(usize),
    /// An operator that Lambda does not know.
    #[error("no operator {0}")]
    UnknownOperator(String),
    /// An operator with an operand that it does not take.
    #[error("{operator} takes {expected}")]
    Operand {
        /// The operator.
        operator: &'static str,
        /// What it takes.
        expected: &'static str,
    },
}

impl Filter {
    /// A filter from patterns, each the JSON text of a `Pattern` in the template.
    ///
    /// # Errors
    /// The first pattern that Lambda would refuse or that cannot mean what it says.
    pub fn parse<P: AsRef<str>>(patterns: &[P]) -> Result<Self, FilterError> {
        let patterns = patterns
            .iter()
            .enumerate()
            .map(|(index, text)| parse::pattern(index + 1, text.as_ref()))
            .collect::<Result<_, _>>()?;
        Ok(Self { patterns })
    }

    /// Whether a record, as it would stand in the function's event, reaches the function.
    pub fn matches(&self, record: &Value) -> bool {
        self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.matches(record))
    }
}

/// All fields must match, and one alternative of every `$or`.
#[derive(Debug, Clone, PartialEq)]
struct ObjectPattern {
    fields: Vec<(String, FieldPattern)>,
    either: Vec<Vec<ObjectPattern>>,
}

#[derive(Debug, Clone, PartialEq)]
enum FieldPattern {
    Object(ObjectPattern),
    /// Any one of them.
    Alternatives(Vec<Matcher>),
}

/// One alternative for the value of a field.
#[derive(Debug, Clone, PartialEq)]
enum Matcher {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    Prefix(String),
    Suffix(String),
    IgnoreCase(String),
    Numeric(Vec<(Comparison, f64)>),
    Exists(bool),
    AnythingBut(Vec<Matcher>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}
