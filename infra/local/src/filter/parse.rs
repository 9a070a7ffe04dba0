//! From the JSON of a pattern to what it means.

use serde_json::{Map, Value};

use super::{Comparison, FieldPattern, FilterError, FilterProblem, Matcher, ObjectPattern};

/// Lambda's limit for one pattern, in bytes.
const LONGEST_PATTERN: usize = 4096;

pub(super) fn pattern(number: usize, text: &str) -> Result<ObjectPattern, FilterError> {
    let root = Place { number, path: &[] };
    if text.len() > LONGEST_PATTERN {
        return root.refuse(FilterProblem::TooLong(text.len()));
    }
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => object(root, &fields),
        Ok(_) => root.refuse(FilterProblem::NotAnObject),
        Err(error) => root.refuse(FilterProblem::Json(error)),
    }
}

/// Where in which pattern we are.
#[derive(Clone, Copy)]
struct Place<'a> {
    number: usize,
    path: &'a [&'a str],
}

impl Place<'_> {
    fn refuse<T>(self, problem: FilterProblem) -> Result<T, FilterError> {
        let path = match self.path {
            [] => "$".to_owned(),
            fields => fields.join("."),
        };
        Err(FilterError { number: self.number, path, problem })
    }
}

fn object(place: Place<'_>, object: &Map<String, Value>) -> Result<ObjectPattern, FilterError> {
    if object.is_empty() {
        return place.refuse(FilterProblem::EmptyObject);
    }
    let mut pattern = ObjectPattern { fields: Vec::new(), either: Vec::new() };
    for (name, value) in object {
        let path = [place.path, &[name.as_str()]].concat();
        let place = Place { path: &path, ..place };
        if name == "$or" {
            pattern.either.push(either(place, value)?);
        } else {
            pattern.fields.push((name.clone(), field(place, value)?));
        }
    }
    Ok(pattern)
}

fn either(place: Place<'_>, value: &Value) -> Result<Vec<ObjectPattern>, FilterError> {
    let refusal = FilterProblem::Operand { operator: "$or", expected: "a list of at least two objects" };
    match value {
        Value::Array(branches) if branches.len() >= 2 => branches
            .iter()
            .map(|branch| match branch {
                Value::Object(fields) => object(place, fields),
                _ => place.refuse(FilterProblem::Operand {
                    operator: "$or",
                    expected: "a list of at least two objects",
                }),
            })
            .collect(),
        _ => place.refuse(refusal),
    }
}

fn field(place: Place<'_>, value: &Value) -> Result<FieldPattern, FilterError> {
    match value {
        Value::Object(fields) => object(place, fields).map(FieldPattern::Object),
        Value::Array(alternatives) if alternatives.is_empty() => place.refuse(FilterProblem::EmptyList),
        Value::Array(alternatives) => alternatives
            .iter()
            .map(|alternative| matcher(place, alternative))
            .collect::<Result<_, _>>()
            .map(FieldPattern::Alternatives),
        bare => place.refuse(FilterProblem::BareValue(bare.clone())),
    }
}

fn matcher(place: Place<'_>, value: &Value) -> Result<Matcher, FilterError> {
    match value {
        Value::Object(operators) => {
            let mut entries = operators.iter();
            match (entries.next(), entries.next()) {
                (Some((operator, operand)), None) => operation(place, operator, operand),
                _ => place.refuse(FilterProblem::OperatorCount(operators.len())),
            }
        }
        Value::Null => Ok(Matcher::Null),
        Value::Bool(value) => Ok(Matcher::Bool(*value)),
        other => match scalar(other) {
            Some(matcher) => Ok(matcher),
            None => place.refuse(FilterProblem::NotAnAlternative),
        },
    }
}

/// A string or a number.
fn scalar(value: &Value) -> Option<Matcher> {
    match value {
        Value::String(text) => Some(Matcher::Text(text.clone())),
        Value::Number(number) => number.as_f64().map(Matcher::Number),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn operation(place: Place<'_>, operator: &str, operand: &Value) -> Result<Matcher, FilterError> {
    let text = |operator: &'static str| match operand {
        Value::String(text) => Ok(text.clone()),
        _ => place.refuse(FilterProblem::Operand { operator, expected: "a string" }),
    };
    match operator {
        "prefix" => text("prefix").map(Matcher::Prefix),
        "suffix" => text("suffix").map(Matcher::Suffix),
        "equals-ignore-case" => text("equals-ignore-case").map(Matcher::IgnoreCase),
        "exists" => match operand {
            Value::Bool(exists) => Ok(Matcher::Exists(*exists)),
            _ => place.refuse(FilterProblem::Operand { operator: "exists", expected: "true or false" }),
        },
        "numeric" => match numeric(operand) {
            Some(comparisons) => Ok(Matcher::Numeric(comparisons)),
            None => place.refuse(FilterProblem::Operand {
                operator: "numeric",
                expected: "a list as [\"=\", 1] or [\">\", 0, \"<=\", 5]",
            }),
        },
        "anything-but" => anything_but(place, operand).map(Matcher::AnythingBut),
        unknown => place.refuse(FilterProblem::UnknownOperator(unknown.to_owned())),
    }
}

fn anything_but(place: Place<'_>, operand: &Value) -> Result<Vec<Matcher>, FilterError> {
    let values = match operand {
        Value::Array(values) if !values.is_empty() => values.iter().map(scalar).collect(),
        Value::Object(_) => {
            let matcher = matcher(place, operand)?;
            let known = matches!(matcher, Matcher::Prefix(_) | Matcher::Suffix(_));
            known.then(|| vec![matcher])
        }
        other => scalar(other).map(|value| vec![value]),
    };
    match values {
        Some(values) => Ok(values),
        None => place.refuse(FilterProblem::Operand {
            operator: "anything-but",
            expected: "a string, a number, a list of them, a prefix or a suffix",
        }),
    }
}

/// One comparison, or two that bound a range.
fn numeric(operand: &Value) -> Option<Vec<(Comparison, f64)>> {
    let Value::Array(parts) = operand else {
        return None;
    };
    let comparisons: Vec<_> = parts
        .chunks(2)
        .map(|pair| match pair {
            [Value::String(operator), number] => Some((comparison(operator)?, number.as_f64()?)),
            _ => None,
        })
        .collect::<Option<_>>()?;
    let is_range = |(operator, _): &(Comparison, f64)| *operator != Comparison::Equal;
    match comparisons.as_slice() {
        [_] => Some(comparisons),
        [lower, upper] if is_range(lower) && is_range(upper) => Some(comparisons),
        _ => None,
    }
}

fn comparison(operator: &str) -> Option<Comparison> {
    match operator {
        "=" => Some(Comparison::Equal),
        "<" => Some(Comparison::Less),
        "<=" => Some(Comparison::LessOrEqual),
        ">" => Some(Comparison::Greater),
        ">=" => Some(Comparison::GreaterOrEqual),
        _ => None,
    }
}
