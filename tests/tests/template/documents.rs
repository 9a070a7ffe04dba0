//! Headings as addresses, and the links of the guides.

use std::collections::BTreeSet;

use crate::read;

/// The addresses of a document's headings: lower case, words joined by hyphens, punctuation gone.
pub(crate) fn anchors(path: &str) -> BTreeSet<String> {
    let text = read(path);
    let mut in_code = false;
    let headings = text.lines().filter(|line| {
        in_code ^= line.starts_with("```");
        !in_code && line.starts_with('#')
    });
    let kept = |c: &char| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_';
    let anchor = |heading: &str| {
        let words: String =
            heading.trim_start_matches('#').trim().to_lowercase().chars().filter(kept).collect();
        words.replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// The targets of a document's links to files of this repository: path (empty: the document itself) and anchor.
fn links(text: &str) -> Vec<(String, Option<String>)> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let own = targets.filter(|target| !target.contains("://"));
    own.map(|target| match target.split_once('#') {
        Some((path, anchor)) => (path.to_owned(), Some(anchor.to_owned())),
        None => (target.to_owned(), None),
    })
    .collect()
}

#[test]
fn every_link_of_the_guides_leads_somewhere() {
    for (document, directory) in [("README.md", ""), ("docs/runbook.md", "docs/"), ("docs/cost.md", "docs/")]
    {
        for (path, anchor) in links(&read(document)) {
            let target = if path.is_empty() { document.to_owned() } else { format!("{directory}{path}") };
            assert!(crate::repository().join(&target).exists(), "{document}: {target} is not there");
            if let Some(anchor) = anchor {
                assert!(anchors(&target).contains(&anchor), "{document}: {target} has no heading {anchor:?}");
            }
        }
    }
}
