//! The end of a call that cannot have everything acknowledged: records are taken back, and it is said why.

use std::pin::pin;
use std::time::{Duration, Instant};

use outbox::{PublishError, PublishErrorKind};

use super::Call;
use crate::client::Client;
use crate::error::{answer_to, missing_permission};

/// How long taking back may last before it is an error. A purge is answered within milliseconds, except by a thread of
/// the client's that resolves a name at the time.
const PURGE_BOUND: Duration = Duration::from_secs(2);
/// How often the log says that it still lasts.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// A record that was changing queues while they were purged is caught by the next purge.
const PURGE_AGAIN: Duration = Duration::from_millis(100);
/// How many of the client's lines an error quotes.
const QUOTED_LINES: usize = 3;

/// Why a call ends before everything is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GiveUp {
    /// Its time is up.
    Limit,
    /// No broker can be reached.
    Unreachable,
    /// The client will never send again.
    Fatal,
    /// Another call on the same client took everything back.
    Purged,
}

impl Call<'_> {
    /// Takes back what is queued or in flight, and decides what became of it.
    ///
    /// Returns when every record is accounted for, however long past the limit that is. A call that left one to the
    /// client would be followed by the end of the invocation, and that by a freeze: the client could send the record
    /// after the thaw, minutes later, behind whatever others have published of its key meanwhile. If the client never
    /// gives it back, the invocation runs into its deadline and the process is killed: a killed process sends nothing.
    pub(crate) async fn take_back(&mut self, client: &Client, reason: GiveUp) {
        let why = self.why(client, reason);
        if reason == GiveUp::Limit {
            self.let_others_finish(client).await;
        }
        let began = Instant::now();
        let mut say_at = began + PURGE_BOUND;
        while self.order.outstanding() > 0 {
            client.purge();
            let again = tokio::time::Instant::now() + PURGE_AGAIN;
            while self.order.outstanding() > 0 {
                match tokio::time::timeout_at(again, self.reports.recv()).await {
                    Ok(Some(report)) => self.take(report),
                    Ok(None) | Err(_) => break,
                }
            }
            let now = Instant::now();
            if self.order.outstanding() > 0 && now >= say_at {
                say_at = now + SAY_EVERY;
                tracing::error!(
                    records = self.order.outstanding(),
                    waited_ms = u64::try_from((now - began).as_millis()).unwrap_or(u64::MAX),
                    "the Kafka client does not give records back: waiting, because it could still send them"
                );
            }
        }
        client.cut();
        self.decide(client, reason, &why);
    }

    /// A purge takes back what other calls have under way as well: those that are well get a moment to finish.
    async fn let_others_finish(&mut self, client: &Client) {
        let end = self.deadline() + self.reserve() / 2;
        loop {
            let mut fewer = pin!(client.fewer_calls.notified());
            fewer.as_mut().enable();
            self.take_reports();
            if self.order.outstanding() == 0 || !client.has_healthy_calls() {
                return;
            }
            tokio::select! {
                Some(report) = self.reports.recv() => self.take(report),
                () = fewer => {}
                () = tokio::time::sleep_until(end.into()) => return,
            }
        }
    }

    fn decide(&mut self, client: &Client, reason: GiveUp, why: &str) {
        let mended_by_hand = match reason {
            GiveUp::Fatal => client.fatal_error().map(|(code, _)| code),
            // Where the limit is short it comes first.
            GiveUp::Unreachable | GiveUp::Limit => client.context().health().misconfigured,
            GiveUp::Purged => None,
        }
        .is_some_and(|code| answer_to(code).kind() == PublishErrorKind::Misconfigured)
            // One broker of several, whose records are among those that are left.
            || (matches!(reason, GiveUp::Limit | GiveUp::Unreachable) && client.context().refusal().is_some());
        let mended_by_hand = mended_by_hand && !self.was_shown_something_old;
        // A record that was taken back from the queue may have been sent before, and have been waiting for another
        // attempt: only where no broker was ever met is it certain that it was not.
        let may_have_been_sent = client.has_met_the_cluster();
        let kind = |taken_back: bool| match (mended_by_hand, taken_back && may_have_been_sent) {
            (true, _) => PublishErrorKind::Misconfigured,
            (false, true) => PublishErrorKind::MayHaveHappened,
            (false, false) => PublishErrorKind::Unavailable,
        };
        let (taken_back, not_sent) = self.order.give_up(|message, taken_back| {
            let text = format!("message {} for topic {:?}: {why}", message.id, message.topic);
            PublishError::new(kind(taken_back), text)
        });
        tracing::warn!(
            ?reason,
            taken_back,
            not_sent,
            batch = self.order.len(),
            "publishing was given up: {why}"
        );
    }

    fn why(&self, client: &Client, reason: GiveUp) -> String {
        let servers = self.config.bootstrap_servers();
        let after = self.started.elapsed();
        let mut why = match (reason, client.context().step()) {
            (GiveUp::Limit | GiveUp::Unreachable, Some(step)) => step.told(self.config),
            (GiveUp::Limit, None) => {
                format!("no acknowledgement by Kafka at {servers} within {:?}", self.limit)
            }
            (GiveUp::Unreachable, None) => {
                format!("no broker of {servers} (KAFKA_BOOTSTRAP_SERVERS) can be reached, after {after:.1?}")
            }
            (GiveUp::Fatal, _) => {
                let what = client.fatal_error().map(|(code, text)| {
                    let permission = missing_permission(code).map(|permission| format!("; {permission}"));
                    format!(": {code:?}: {text}{}", permission.unwrap_or_default())
                });
                format!("the Kafka client has failed for good{}", what.unwrap_or_default())
            }
            (GiveUp::Purged, _) => {
                "taken back together with another batch on the same Kafka client".to_owned()
            }
        };
        if self.was_shown_something_old {
            why.push_str("; it may have been renewed since it was obtained, and is obtained again for the next publish");
        }
        let lines = client.context().last_lines(QUOTED_LINES);
        if !lines.is_empty() && reason != GiveUp::Purged {
            why.push_str("; the client's last words: ");
            why.push_str(&lines.join(" | "));
        }
        why
    }
}
