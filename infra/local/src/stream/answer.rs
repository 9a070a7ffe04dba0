//! What a function's answer says about the batch it was given.

use serde_json::Value;

use crate::lambda::Outcome;

/// How far a batch is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// All of it.
    Done,
    /// To be sent again from this index on.
    FailedFrom(usize),
}

/// Reads the outcome of a batch whose records have these sequence numbers, as Lambda reads it: the earliest
/// failure counts, an answer that cannot be read is a failure of the whole batch, and so is one that names a
/// record which is not in it.
pub(super) fn progress(
    outcome: &Outcome,
    sequence_numbers: &[&str],
    reports_item_failures: bool,
) -> Progress {
    let Some(answer) = outcome.response() else {
        return Progress::FailedFrom(0);
    };
    let failures = match &answer["batchItemFailures"] {
        _ if !reports_item_failures => return Progress::Done,
        // An answer without the list, or with none in it, is a success.
        Value::Null => return Progress::Done,
        Value::Array(failures) => failures,
        _ => return Progress::FailedFrom(0),
    };
    let indexes = failures.iter().map(|failure| {
        let identifier = failure["itemIdentifier"].as_str()?;
        sequence_numbers.iter().position(|it| *it == identifier)
    });
    match indexes.map(|index| index.unwrap_or(0)).min() {
        Some(earliest) => Progress::FailedFrom(earliest),
        None => Progress::Done,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers() {
        let batch = ["10", "20", "30"];
        for (answer, expected) in [
            (json!({"batchItemFailures": []}), Progress::Done),
            (json!({"batchItemFailures": null}), Progress::Done),
            (json!({}), Progress::Done),
            (json!(null), Progress::Done),
            (json!({"batchItemFailures": [{"itemIdentifier": "20"}]}), Progress::FailedFrom(1)),
            (
                json!({"batchItemFailures": [{"itemIdentifier": "30"}, {"itemIdentifier": "20"}]}),
                Progress::FailedFrom(1),
            ),
            (json!({"batchItemFailures": [{"itemIdentifier": "99"}]}), Progress::FailedFrom(0)),
            (json!({"batchItemFailures": [{"itemIdentifier": ""}]}), Progress::FailedFrom(0)),
            (json!({"batchItemFailures": [{}]}), Progress::FailedFrom(0)),
            (json!({"batchItemFailures": "20"}), Progress::FailedFrom(0)),
        ] {
            assert_eq!(progress(&Outcome::Response(answer.clone()), &batch, true), expected, "{answer}");
        }
        let named = Outcome::Response(json!({"batchItemFailures": [{"itemIdentifier": "20"}]}));
        assert_eq!(progress(&named, &batch, false), Progress::Done, "not asked for");
        assert_eq!(progress(&Outcome::TimedOut, &batch, true), Progress::FailedFrom(0));
    }
}
