//! Counted: what the relay costs, how many of its writes are refused, and the cases that others met in the field, over
//! the real DynamoDB store on the embedded database. `cargo test -p outbox-tests --test counted -- --nocapture` prints
//! the counts.
//!
//! `wire` sits in the SDK's HTTP client, below its retries: it counts requests, refused writes and capacity units by
//! kind, and loses replies, delays requests and throttles. The database's own meter counts beside it.
//!
//! The cases seen in the field, and the tests that hold them. Paths without a directory are modules of this target;
//! `relay` is `outbox/tests/relay` (virtual time, the store in memory), `store` is `store-dynamodb/tests/store`.
//!
//! | case | tests |
//! |---|---|
//! | relays beyond the bucket count kept reading and writing | `relay::continuous::relays_far_back_stay_silent`, `relay::retries::a_sweep_without_a_share_ends_at_once` |
//! | an invocation that finds no free bucket ends at once | `cost::a_hinted_run_that_finds_no_free_bucket_costs_one_read`, `relay::hinted::a_bucket_that_another_holds_is_left_to_it` |
//! | a claim abandoned at stop landed after the release | `stop::a_claim_abandoned_at_the_stop_that_lands_after_the_release_is_handed_back`, `stop::a_hinted_run_hands_back_what_an_abandoned_claim_takes`, `store::leases::a_stop_frees_everything_and_a_late_heartbeat_does_not_undo_it` |
//! | leases freed before the heartbeat was retired | `stop::a_stop_that_is_cut_short_after_its_stamp_costs_a_lapse_and_no_ghost` |
//! | the answer of a conditional write was lost | `lost_replies` (claim, keep, heartbeat, renewal, release, and a whole run) |
//! | clocks that differ by less than the margin never steal | `skew::clocks_that_differ_by_less_than_the_margin_never_steal_and_make_no_refused_write`, `relay::skew::clocks_that_differ_by_less_than_the_margin_never_steal_a_bucket` |
//! | beyond it: duplicates, no loss, no lasting double owner | `skew::clocks_that_differ_by_more_than_the_margin_make_no_lasting_double_owner`, `relay::skew::clocks_that_differ_by_more_than_the_margin_make_duplicates_no_loss_and_no_lasting_double_owner` |
//! | frozen inside a publish past its lease | `publishing::a_relay_frozen_inside_a_publish_past_its_lease_deletes_nothing`, `relay::leases::{a_relay_that_froze_during_a_publish_deletes_nothing, a_lease_lost_during_a_publish_deletes_nothing, a_thawed_relay_does_not_publish_under_an_old_lease}` |
//! | a throttled renewal is not a lost lease | `publishing::a_throttled_renewal_is_not_a_lost_lease` |
//! | waits that grow, are jittered, capped by the renewal, start over, count from the failure | `relay::retries::{a_store_that_fails_is_tried_again_with_waits_that_grow_and_start_over_after_a_good_round, relays_that_fail_together_do_not_try_again_together}`, `relay::continuous::a_failing_bucket_backs_off_alone`, `outbox::backoff` |
//! | buckets change hands only between publishes | `relay::continuous::scaling_under_load_makes_no_duplicate` (20 times) |
//! | releasing while a publish runs, or before the delete | `relay::continuous::{a_stop_waits_for_the_publish_deletes_what_was_acknowledged_and_then_hands_over, without_time_left_a_stop_releases_nothing, scaling_under_load_makes_no_duplicate}` |
//! | a fetch beside a commit returned n+1 without n | `store::messages::a_message_that_appears_in_a_gap_is_fetched_before_those_behind_it` |
//! | a permanently unused number does not stall | `gaps::a_number_that_is_never_used_does_not_stall_its_bucket` |
//! | probes of a fetch are bounded | `gaps::no_fetch_probes_more_than_eight_gaps` |
//! | a batch fetched again after a failure is probed again | `gaps::a_batch_that_is_fetched_again_after_a_failure_is_probed_again` |
//! | the first fetch after a handover has no baseline | `gaps::the_first_fetch_after_a_handover_has_no_baseline`; within a run: `gaps::a_run_probes_no_gap_below_what_it_has_removed`, `store::messages::numbers_that_this_relay_removed_are_no_gap` |
//! | a relay that never publishes shows in the oldest age | `ghost::a_relay_that_never_publishes_shows_in_the_age_of_the_oldest_message` |
//! | poison at the head of one bucket, 5,000 messages in another | `poison`, `relay::quarantine::a_bucket_beside_a_poisoned_one_drains_at_its_speed` |
//! | every relay sampled the same backlog, and unknown looked like empty | `sample`, `relay::sampling`, `cost::an_idle_sweep_writes_nothing_and_reads_half_a_unit_a_bucket` |
//! | never rely on a shutdown signal | `stop::nothing_is_left_to_a_shutdown_when_a_run_has_returned`, `stop::a_run_that_is_killed_leaves_a_lease_that_lapses_and_nothing_else`, `relay::sweep::what_a_killed_sweep_leaves_is_done_by_the_next` |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test states what must hold by panicking when it does not"
)]

mod cost;
mod fleet;
mod gaps;
mod ghost;
mod kind;
mod lost_replies;
mod poison;
mod publishing;
mod sample;
mod skew;
mod stop;
mod support;
mod wire;
