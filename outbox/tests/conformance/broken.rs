//! For every promise a store that breaks it, and the scenario that must say so.

use outbox::conformance::{self, Harness, HarnessError, SCENARIOS};
use outbox::{Bucket, Message};

use crate::fault::Fault;
use crate::faulty::Faulty;

struct Broken(Fault);

impl Harness for Broken {
    type Store = Faulty;

    async fn fresh(&self) -> Result<Faulty, HarnessError> {
        Ok(Faulty::new(self.0))
    }

    async fn put(&self, store: &Faulty, _: Bucket, message: Message) -> Result<(), HarnessError> {
        Ok(store.memory.enqueue(message, conformance::BUCKET_COUNT)?)
    }

    async fn losing_a_reply(&self, store: &Faulty, _: usize) -> Option<Faulty> {
        Some(store.losing_the_next_reply())
    }

    async fn unreachable(&self) -> Option<Faulty> {
        Some(Faulty::new(self.0).unreachable())
    }

    async fn heartbeats(&self, store: &Faulty) -> Option<usize> {
        Some(store.memory.coordination().heartbeats.len())
    }
}

/// Each broken promise, and a scenario that sees it.
const BROKEN: &[(Fault, &str)] = &[
    (Fault::FetchesOutOfOrder, "messages::come_in_committed_order"),
    (Fault::FetchesMoreThanAsked, "messages::are_fetched_up_to_a_number"),
    (Fault::FetchesPastTheSize, "messages::are_fetched_up_to_a_size"),
    (Fault::FetchesLate, "messages::are_seen_at_once"),
    (Fault::HidesWhatIsBehindTheRemoved, "messages::drain_in_order"),
    (Fault::NeverSaysMore, "messages::are_fetched_up_to_a_number"),
    (Fault::TakesAnEmptyKeyForNone, "messages::come_back_as_they_were_put"),
    (Fault::DeletesOneMore, "messages::are_deleted_alone"),
    (Fault::DeletesAllUpTo, "messages::are_deleted_one_by_one"),
    (Fault::DeletesByPlace, "messages::are_deleted_alone"),
    (Fault::RefusesToDeleteAgain, "messages::are_deleted_alone"),
    (Fault::ProbesFindNothing, "messages::are_pending"),
    (Fault::ProbesFindAll, "messages::are_pending"),
    (Fault::LapsesEarly, "acquisition::takes_all_for_one_relay"),
    (Fault::GrantsTwice, "acquisition::grants_nothing_twice_at_once"),
    (Fault::ForgetsOthers, "acquisition::shares_by_the_plan"),
    (Fault::TakesMoreThanItsShare, "acquisition::hands_back_what_exceeds_the_share"),
    (Fault::KeepsItsSurplus, "acquisition::hands_back_what_exceeds_the_share"),
    (Fault::TakesWhatIsNotWanted, "acquisition::claims_only_what_is_wanted"),
    (Fault::FreesBusyBuckets, "acquisition::leaves_busy_buckets_alone"),
    (Fault::HidesTheExcess, "acquisition::leaves_busy_buckets_alone"),
    (Fault::HidesWhatIsAvailable, "acquisition::hands_back_what_exceeds_the_share"),
    (Fault::ForgetsTheRank, "acquisition::takes_nothing_from_a_fair_split"),
    (Fault::ForgetsTheRank, "acquisition::ranks_those_who_wait"),
    (Fault::TakesALateHeartbeat, "acquisition::refuses_a_clock_that_is_behind"),
    (Fault::RefusesItsOwnHeartbeat, "acquisition::takes_the_same_round_again"),
    (Fault::NeverPrunes, "acquisition::prunes_old_heartbeats"),
    (Fault::LapsesEarly, "acquisition::passes_over_what_is_held"),
    (Fault::LapsesLate, "acquisition::passes_over_what_is_held"),
    (Fault::CountsTheCrashedForEver, "acquisition::gives_out_a_crashed_relays_share"),
    (Fault::RenewsNothing, "renewal::extends_its_own"),
    (Fault::RenewsWhatHasLapsed, "renewal::ends_once_the_lease_has_lapsed"),
    (Fault::RenewsWhatAnotherHas, "renewal::ends_where_another_took_over"),
    (Fault::RenewsWhatWasReleased, "renewal::ends_with_a_release"),
    (Fault::RenewsBackwards, "renewal::never_moves_backwards"),
    (Fault::RenewsByVersion, "renewal::goes_on_after_an_unanswered_one"),
    (Fault::ReleasesNothing, "ownership::releases_at_once_and_keeps_the_version"),
    (Fault::ReleasesWhatAnotherHas, "ownership::releases_nothing_of_anothers"),
    (Fault::ReleasesByVersion, "ownership::releases_after_an_unanswered_renewal"),
    (Fault::ReleaseForgetsTheVersion, "ownership::releases_at_once_and_keeps_the_version"),
    (Fault::RefusesToReleaseAgain, "ownership::releases_nothing_of_anothers"),
    (Fault::FindsNoStrays, "ownership::finds_strays"),
    (Fault::TakesAllForStrays, "ownership::finds_strays"),
    (Fault::FindsNoStrays, "ownership::hands_back_what_a_late_claim_took"),
    (Fault::StopsAMemberOnly, "ownership::stops_for_good"),
    (Fault::StopKeepsTheMember, "ownership::stops_for_good"),
    (Fault::StopDeletesTheHeartbeat, "ownership::stops_for_good"),
    (Fault::StopFreesTheListedAlone, "ownership::stops_for_good"),
    (Fault::PrunesStampsAtOnce, "ownership::keeps_the_stamp_for_one_duration"),
    (Fault::NeverPrunes, "ownership::keeps_the_stamp_for_one_duration"),
    (Fault::LooksLate, "ownership::sees_a_message_at_once"),
    (Fault::ClaimsWhatIsHeld, "claims::pass_over_what_is_held"),
    (Fault::ClaimsWhatIsHeld, "claims::have_one_winner_each"),
    (Fault::ClaimsNothing, "claims::take_what_is_free"),
    (Fault::ClaimsMakeMembers, "claims::are_no_members"),
    (Fault::ClaimsRepeatVersions, "claims::make_later_versions"),
    (Fault::LapsesLate, "claims::take_what_has_lapsed"),
    (Fault::SamplesZero, "backlog::counts_and_dates_what_waits"),
    (Fault::SamplesAllBuckets, "backlog::counts_and_dates_what_waits"),
    (Fault::DatesTheNewest, "backlog::counts_and_dates_what_waits"),
    (Fault::TakesSilenceForNothing, "backlog::is_an_error_where_it_is_unknown"),
    (Fault::MovesAndParksNoKey, "quarantine::moves_poison_and_parks_its_key"),
    (Fault::MovesAndHidesIt, "quarantine::moves_poison_and_parks_its_key"),
    (Fault::MovesAndExtendsNothing, "quarantine::moves_poison_and_parks_its_key"),
    (Fault::FollowsEverything, "quarantine::follows_parked_keys_alone"),
    (Fault::MovesForAnybody, "quarantine::moves_nothing_under_a_lost_lease"),
    (Fault::CountsOnce, "quarantine::counts_attempts"),
    (Fault::TakesALostClaimForRefused, "replies::of_a_claim"),
    (Fault::TakesALostRenewalForRefused, "replies::of_a_renewal"),
    (Fault::TakesALostRoundForALaterOne, "replies::of_an_acquisition"),
    (Fault::ReleasesNothing, "replies::of_a_release"),
    (Fault::StopsAMemberOnly, "replies::of_a_stop"),
    (Fault::DeletesMoreTheSecondTime, "replies::of_a_delete"),
    (Fault::RenewsBackwards, "random::calls_agree_with_the_model"),
];

#[tokio::test]
async fn no_promise_is_broken_unseen() {
    for (fault, scenario) in BROKEN {
        let report = conformance::run_all(&Broken(*fault)).await;
        let violations: Vec<&str> = report.violations().map(|violation| violation.scenario).collect();
        assert!(violations.contains(scenario), "{fault:?} was not seen by {scenario}, but by {violations:?}");
        assert!(violations.iter().all(|name| SCENARIOS.contains(name)), "{violations:?}");
    }
}

/// A scenario that nothing makes fail would promise what it does not check.
#[test]
fn every_scenario_has_seen_a_broken_promise() {
    let unseen = |name: &&&str| !BROKEN.iter().any(|(_, scenario)| scenario == *name);
    assert_eq!(SCENARIOS.iter().filter(unseen).collect::<Vec<_>>(), [&""; 0]);
}

/// Without a fault the same store, lost replies and all, keeps the contract; and nothing is left out.
#[tokio::test]
async fn the_same_store_without_a_fault_keeps_the_contract() {
    let report = conformance::run_all(&Broken(Fault::None)).await;
    assert_eq!(report.passed().collect::<Vec<_>>(), SCENARIOS, "{report}");
}
