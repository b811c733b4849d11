//! Elections against an API server in memory, in virtual time: with resourceVersions, and with
//! connections that hang.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::time::sleep;

/// What becomes of a candidate's requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Up,
    /// They never arrive.
    Cut,
    /// They are carried out, and the answer never arrives.
    Mute,
}

#[derive(Default)]
struct Server {
    lease: Option<Value>,
    writes: u64,
    uids: u64,
}

impl Server {
    fn refuse(code: u16, reason: &str) -> (StatusCode, Value) {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason,
            "reason": reason, "code": code, "details": {"name": "lease"},
        });
        (StatusCode::from_u16(code).unwrap(), status)
    }

    fn answer(&mut self, method: &Method, body: &[u8]) -> (StatusCode, Value) {
        let sent = || serde_json::from_slice::<Value>(body).unwrap();
        match (method.as_str(), self.lease.take()) {
            ("GET" | "PUT", None) => Self::refuse(404, "NotFound"),
            ("GET", Some(lease)) => (StatusCode::OK, self.store(lease)),
            ("POST", None) => {
                self.uids += 1;
                let mut lease = sent();
                lease["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
                self.write(lease)
            }
            ("POST", Some(lease)) => {
                self.store(lease);
                Self::refuse(409, "AlreadyExists")
            }
            ("PUT", Some(lease)) => {
                let sent = sent();
                let same = |field: &str| sent["metadata"][field] == lease["metadata"][field];
                if same("uid") && same("resourceVersion") {
                    return self.write(sent);
                }
                self.store(lease);
                Self::refuse(409, "Conflict")
            }
            (method, _) => panic!("{method} is not in our Role's use"),
        }
    }

    fn write(&mut self, mut lease: Value) -> (StatusCode, Value) {
        self.writes += 1;
        lease["metadata"]["resourceVersion"] = json!(self.writes.to_string());
        (StatusCode::OK, self.store(lease))
    }

    fn store(&mut self, lease: Value) -> Value {
        self.lease = Some(lease.clone());
        lease
    }
}

#[derive(Clone, Default)]
struct World(Arc<Mutex<Server>>);

impl World {
    fn client(&self, link: watch::Receiver<Link>) -> Client {
        let world = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (world, link) = (world.clone(), link.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                sleep(Duration::from_millis(3)).await;
                let now = *link.borrow();
                if now == Link::Cut {
                    std::future::pending::<()>().await;
                }
                let (status, answer) = world.0.lock().unwrap().answer(&parts.method, &body);
                if now == Link::Mute {
                    std::future::pending::<()>().await;
                }
                let body = Body::from(serde_json::to_vec(&answer).unwrap());
                Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
            }
        });
        Client::new(service, "lab")
    }

    fn candidate(&self, identity: &str) -> (Election, watch::Sender<Link>) {
        let (link, receiver) = watch::channel(Link::Up);
        let client = self.client(receiver);
        (
            Election::start(client, "lab", "lease", identity, Timing::default()),
            link,
        )
    }

    fn spec(&self, field: &str) -> Value {
        let server = self.0.lock().unwrap();
        server
            .lease
            .as_ref()
            .map_or(Value::Null, |lease| lease["spec"][field].clone())
    }
}

/// Who leads now; more than one is a failure of the whole idea.
fn leader(candidates: &[(Election, watch::Sender<Link>)]) -> Option<(usize, Fence)> {
    let mut leaders = candidates
        .iter()
        .enumerate()
        .filter_map(|(i, (election, _))| Some((i, election.fence()?)));
    let first = leaders.next();
    assert_eq!(leaders.next(), None, "two leaders beside {first:?}");
    first
}

/// Looks every 5 ms until somebody else than `but` leads.
async fn next_leader(
    candidates: &[(Election, watch::Sender<Link>)],
    but: Option<usize>,
) -> (usize, Fence) {
    for _ in 0..20_000 {
        if let Some(found) = leader(candidates)
            && Some(found.0) != but
        {
            return found;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("nobody leads");
}

#[tokio::test(start_paused = true)]
async fn of_many_one_leads_and_its_successor_waits_until_it_has_stepped_down() {
    let world = World::default();
    let names = ["a", "b", "c", "d", "e"];
    let candidates: Vec<_> = names.iter().map(|name| world.candidate(name)).collect();
    let (mut at, first) = next_leader(&candidates, None).await;
    assert_eq!((first.lease_uid.as_str(), first.epoch), ("uid-1", 0));
    for term in 1..4 {
        // Either end of the wire may be the one that fails.
        let link = if term % 2 == 0 { Link::Cut } else { Link::Mute };
        candidates[at].1.send_replace(link);
        let cut = Instant::now();
        let (next, fence) = next_leader(&candidates, Some(at)).await;
        assert_eq!(fence.epoch, term);
        candidates[at].0.lost().await;
        let waited = cut.elapsed().as_secs();
        assert!(
            (10..=28).contains(&waited),
            "the successor came after {waited} s"
        );
        assert_eq!(candidates[at].0.elected().await, Err(LeadershipLost));
        at = next;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_renews_is_left_alone() {
    let world = World::default();
    let candidates: Vec<_> = ["a", "b", "c"].iter().map(|n| world.candidate(n)).collect();
    let (at, fence) = next_leader(&candidates, None).await;
    for _ in 0..4_000 {
        assert_eq!(leader(&candidates), Some((at, fence.clone())));
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_at_once_with_the_next_epoch() {
    let world = World::default();
    let candidates = [world.candidate("a"), world.candidate("b")];
    let (at, _) = next_leader(&candidates, None).await;
    candidates[at].0.release().await;
    assert_eq!(candidates[at].0.fence(), None);
    assert_eq!(world.spec("holderIdentity"), json!(""));
    assert_eq!(world.spec("leaseDurationSeconds"), json!(1));
    let released = Instant::now();
    let (_, fence) = next_leader(&candidates, Some(at)).await;
    assert_eq!(fence.epoch, 1);
    assert!(released.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_does_not_lead_releases_nothing() {
    let world = World::default();
    let candidates = [world.candidate("a"), world.candidate("b")];
    let (at, fence) = next_leader(&candidates, None).await;
    candidates[1 - at].0.release().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(leader(&candidates), Some((at, fence)));
}

#[tokio::test(start_paused = true)]
async fn the_epoch_goes_on_from_a_record_of_client_go() {
    let world = World::default();
    world.0.lock().unwrap().lease = Some(json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "lease", "uid": "uid-go", "resourceVersion": "77",
            "annotations": {"note": "keep me"}},
        "spec": {"holderIdentity": "pod_1f", "leaseDurationSeconds": 15, "leaseTransitions": 41,
            "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2099-01-01T00:00:00.000000Z"},
    }));
    let begun = Instant::now();
    let (election, _link) = world.candidate("a");
    let fence = election.elected().await.unwrap();
    assert_eq!((fence.lease_uid.as_str(), fence.epoch), ("uid-go", 42));
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_secs(15), "stolen after {waited:?}");
    let server = world.0.lock().unwrap();
    let lease = server.lease.as_ref().unwrap();
    assert_eq!(lease["metadata"]["annotations"]["note"], "keep me");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_ends_the_term() {
    let world = World::default();
    let (election, _link) = world.candidate("a");
    election.elected().await.unwrap();
    world.0.lock().unwrap().lease = None;
    election.lost().await;
    assert_eq!(election.fence(), None);
}

#[tokio::test(start_paused = true)]
async fn who_else_writes_the_lease_does_not_end_the_term() {
    let world = World::default();
    let (election, _link) = world.candidate("a");
    let fence = election.elected().await.unwrap();
    for note in 0..10 {
        {
            let mut server = world.0.lock().unwrap();
            let mut lease = server.lease.take().unwrap();
            lease["metadata"]["annotations"] = json!({ "note": note.to_string() });
            server.write(lease);
        }
        sleep(Duration::from_secs(3)).await;
        assert_eq!(election.fence(), Some(fence.clone()));
    }
    assert_eq!(
        world.0.lock().unwrap().lease.as_ref().unwrap()["metadata"]["annotations"]["note"],
        "9"
    );
}
