//! Floor, warm buffer, demand and cooldown.

use super::{Census, Member, Phase};
use std::cmp::Reverse;
use std::time::Duration;

/// What the set asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// `minReplicas`.
    pub min: i32,
    /// `maxReplicas`; 0 means no bound.
    pub max: i32,
    /// `minAvailableReplicas`.
    pub min_available: i32,
    /// Leases that wait for an exporter of this set.
    pub waiting_leases: i32,
    /// `scaleDownCooldown`.
    pub cooldown: Duration,
}

/// The scale-down clock of a set, kept in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Since when there have been more exporters than asked for, in milliseconds since the Unix
    /// epoch; set anew when one is given up.
    pub surplus_since: Option<u64>,
}

/// What to do about the number of exporters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scale {
    /// All is as asked.
    Steady,
    /// There is a surplus: start the clock.
    StartClock,
    /// There is none any more: stop the clock.
    StopClock,
    /// The surplus has to last this much longer.
    Cooling(Duration),
    /// Create so many.
    Up(i32),
    /// Give this one up, and start the clock anew.
    Down(String),
}

/// Decides by the members of the set at `now` (milliseconds since the Unix epoch).
///
/// Exporters on their way count as available for growth, so a lease that waits does not create
/// one exporter per look; only those that are available count as surplus.
#[must_use]
pub fn scale(demand: &Demand, members: &[Member], clock: Clock, now: u64) -> Scale {
    let census = Census::of(members);
    let room = if demand.max == 0 {
        i32::MAX
    } else {
        demand.max.saturating_sub(census.replicas)
    };
    let floor = demand
        .min
        .saturating_sub(census.replicas - leaving(members));
    let buffer = demand.min_available.saturating_sub(census.promised);
    let leases = demand.waiting_leases.saturating_sub(census.promised);
    let more = floor.max(buffer).max(leases).min(room);
    if more > 0 {
        return Scale::Up(more);
    }
    let Some(victim) = victim(demand, &census, members) else {
        return if clock.surplus_since.is_some() {
            Scale::StopClock
        } else {
            Scale::Steady
        };
    };
    let Some(since) = clock.surplus_since else {
        return Scale::StartClock;
    };
    let lasted = Duration::from_millis(now.saturating_sub(since));
    match demand.cooldown.checked_sub(lasted) {
        Some(rest) if !rest.is_zero() => Scale::Cooling(rest),
        _ => Scale::Down(victim.name.clone()),
    }
}

/// The member to give up, if there is a surplus: a stuck one first, then the newest idle one.
fn victim<'a>(demand: &Demand, census: &Census, members: &'a [Member]) -> Option<&'a Member> {
    let wanted = demand.min_available.max(demand.waiting_leases);
    if census.replicas - leaving(members) <= demand.min || census.promised <= wanted {
        return None;
    }
    members
        .iter()
        .filter(|member| member.is_promised())
        .min_by_key(|member| {
            (
                rank(member),
                Reverse(member.created),
                Reverse(member.name.clone()),
            )
        })
}

fn leaving(members: &[Member]) -> i32 {
    members
        .iter()
        .map(|member| i32::from(member.phase == Phase::Draining))
        .sum()
}

fn rank(member: &Member) -> u8 {
    match (member.phase, member.online) {
        (Phase::Failed, _) => 0,
        (_, false) => 1,
        (_, true) => 2,
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used)]
mod tests {
    use super::super::census::tests::member;
    use super::*;
    use proptest::prelude::*;

    const COOLDOWN: Duration = Duration::from_secs(300);
    const DEMAND: Demand = Demand {
        min: 0,
        max: 4,
        min_available: 1,
        waiting_leases: 0,
        cooldown: COOLDOWN,
    };

    fn idle(count: usize) -> Vec<Member> {
        (0..count)
            .map(|index| member(&format!("idle-{index}")))
            .collect()
    }

    fn leased(name: &str) -> Member {
        Member {
            leased: true,
            ..member(name)
        }
    }

    fn coming(name: &str) -> Member {
        Member {
            online: false,
            phase: Phase::Pending,
            ..member(name)
        }
    }

    #[test]
    fn growth() {
        let none = Clock::default();
        let cases: Vec<(&str, Demand, Vec<Member>, Scale)> = vec![
            ("warm buffer", DEMAND, vec![], Scale::Up(1)),
            (
                "floor",
                Demand {
                    min: 3,
                    min_available: 0,
                    ..DEMAND
                },
                vec![],
                Scale::Up(3),
            ),
            (
                "bound",
                Demand {
                    min_available: 9,
                    ..DEMAND
                },
                vec![leased("a")],
                Scale::Up(3),
            ),
            (
                "no bound",
                Demand {
                    max: 0,
                    min_available: 9,
                    ..DEMAND
                },
                vec![],
                Scale::Up(9),
            ),
            ("refill", DEMAND, vec![leased("a")], Scale::Up(1)),
            ("on its way", DEMAND, vec![coming("a")], Scale::Steady),
            (
                "full",
                DEMAND,
                (0..4).map(|i| leased(&format!("l{i}"))).collect(),
                Scale::Steady,
            ),
            (
                "demand",
                Demand {
                    min_available: 0,
                    waiting_leases: 2,
                    ..DEMAND
                },
                vec![],
                Scale::Up(2),
            ),
            (
                "demand met by those on their way",
                Demand {
                    min_available: 0,
                    waiting_leases: 1,
                    ..DEMAND
                },
                vec![coming("a")],
                Scale::Steady,
            ),
        ];
        for (name, demand, members, want) in cases {
            assert_eq!(scale(&demand, &members, none, 0), want, "{name}");
        }
    }

    #[test]
    fn a_surplus_lasts_the_cooldown_before_one_goes() {
        let members = idle(3);
        assert_eq!(
            scale(&DEMAND, &members, Clock::default(), 5_000),
            Scale::StartClock
        );
        let clock = Clock {
            surplus_since: Some(5_000),
        };
        let cooling = scale(&DEMAND, &members, clock, 65_000);
        assert_eq!(cooling, Scale::Cooling(Duration::from_secs(240)));
        assert_eq!(
            scale(&DEMAND, &members, clock, 305_000),
            Scale::Down("idle-2".into())
        );
        assert_eq!(scale(&DEMAND, &idle(1), clock, 305_000), Scale::StopClock);
        // A clock that went backwards makes it wait, never go early.
        assert_eq!(scale(&DEMAND, &members, clock, 0), Scale::Cooling(COOLDOWN));
    }

    #[test]
    fn the_stuck_go_first_then_the_newest_idle() {
        let old = Member {
            created: 1,
            ..member("old")
        };
        let new = Member {
            created: 2,
            ..member("new")
        };
        let stuck = Member {
            online: false,
            phase: Phase::Failed,
            ..member("stuck")
        };
        let clock = Clock {
            surplus_since: Some(0),
        };
        let pick = |members: &[Member]| scale(&DEMAND, members, clock, 300_000);
        assert_eq!(pick(&[old.clone(), new.clone()]), Scale::Down("new".into()));
        assert_eq!(pick(&[old, new, stuck]), Scale::Down("stuck".into()));
    }

    #[test]
    fn the_floor_holds_and_those_on_their_way_out_do_not_carry_it() {
        let demand = Demand {
            min: 2,
            min_available: 0,
            ..DEMAND
        };
        let clock = Clock {
            surplus_since: Some(0),
        };
        let going = Member {
            enabled: false,
            phase: Phase::Draining,
            ..member("going")
        };
        let mut members = idle(2);
        members.push(going);
        assert_eq!(scale(&demand, &members, clock, 300_000), Scale::StopClock);
    }

    fn any_member() -> impl Strategy<Value = Member> {
        let phase = prop_oneof![
            Just(Phase::Pending),
            Just(Phase::Running),
            Just(Phase::Failed),
            Just(Phase::Draining)
        ];
        (any::<u16>(), phase, any::<(bool, bool, bool)>(), 0..9_i64).prop_map(
            |(name, phase, (online, enabled, leased), created)| Member {
                name: format!("m{name}"),
                phase,
                online,
                enabled,
                leased,
                created,
            },
        )
    }

    proptest! {
        #[test]
        fn within_bounds_and_never_a_leased_one(
            members in prop::collection::vec(any_member(), 0..12),
            (min, max, min_available, waiting_leases) in (0..6_i32, 0..8_i32, 0..6_i32, 0..6_i32),
            now in 0..2_000_000_u64,
        ) {
            let demand = Demand { min, max, min_available, waiting_leases, cooldown: COOLDOWN };
            let clock = Clock { surplus_since: Some(0) };
            match scale(&demand, &members, clock, now) {
                Scale::Up(count) => {
                    prop_assert!(count > 0);
                    prop_assert!(max == 0 || members.len() as i32 + count <= max);
                }
                Scale::Down(name) => {
                    let victim = members.iter().find(|m| m.name == name && !m.leased).unwrap();
                    prop_assert!(victim.is_promised() && now >= 300_000);
                    let rest: Vec<Member> =
                        members.iter().filter(|m| !std::ptr::eq(*m, victim)).cloned().collect();
                    prop_assert!(!matches!(scale(&demand, &rest, Clock::default(), now), Scale::Up(_)));
                }
                _ => {}
            }
        }
    }
}
