//! The transition table: the one place that says which state follows which.
//!
//! The table below yields the state and transition kinds, the typed methods of
//! [`In`](super::In), the replay of journaled transitions, the diagram in ARCHITECTURE.md, the
//! snapshot of the whole matrix, and the names in metrics and spans. A row without the matching
//! [`Accepts`](super::state::Accepts) implementation does not compile.

use super::state::{
    Annotated, AnnotatedAt, Credentialed, Deleted, Draining, Drifted, Grant, In, Instance, Pending,
    Reason, Revised, RunningUnits, Started, TornDown, Written, WrittenFiles,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

macro_rules! transitions {
    (
        states { $($(#[$sdoc:meta])* $state:ident $sname:literal;)* }
        rows { $($(#[$tdoc:meta])* $event:ident($payload:ty) $tname:literal .$method:ident: $($from:ident)|+ => $to:ident;)* }
    ) => {
        /// The kinds of state.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum State { $($(#[$sdoc])* $state,)* }

        impl State {
            /// Every state, in the order of an instance's life.
            pub const ALL: &[Self] = &[$(Self::$state),*];

            /// The name in annotations, metrics and messages.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$state => $sname),* } }
        }

        /// The kinds of transition.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum TransitionKind { $($(#[$tdoc])* $event,)* }

        impl TransitionKind {
            /// Every kind of transition.
            pub const ALL: &[Self] = &[$(Self::$event),*];

            /// The name in metrics, spans and messages.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$event => $tname),* } }
        }

        /// A transition with what it carries, as it stands in the journal. The order of the variants
        /// is part of the journal's format: new ones go to the end.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Transition { $($(#[$tdoc])* $event($payload),)* }

        impl Transition {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> TransitionKind {
                match self { $(Self::$event(_) => TransitionKind::$event),* }
            }
        }

        /// Every legal transition.
        pub const TABLE: &[(State, TransitionKind, State)] = &[
            $($((State::$from, TransitionKind::$event, State::$to),)+)*
        ];

        $($(impl In<$from> {
            #[doc = concat!("`", stringify!($from), "` → `", stringify!($to), "`.")]
            #[must_use]
            pub fn $method(self, with: $payload) -> In<$to> { self.take(with) }
        })+)*

        impl Instance {
            /// The kind of state that it is in.
            #[must_use]
            pub const fn state(&self) -> State {
                match self { $(Self::$state(_) => State::$state),* }
            }

            /// Carries out a transition whose legality is known only now.
            ///
            /// # Errors
            /// [`IllegalTransition`], if the table has no such row.
            pub fn transition(self, transition: Transition) -> Result<Self, IllegalTransition> {
                match (self, transition) {
                    $($((Self::$from(instance), Transition::$event(with)) => {
                        Ok(Self::$to(instance.$method(with)))
                    })+)*
                    (instance, transition) => Err(IllegalTransition {
                        exporter: instance.about().name.clone(),
                        from: instance.state(),
                        transition: transition.kind(),
                    }),
                }
            }
        }
    };
}

transitions! {
    states {
        /// Planned under a journaled name, or created; no credential yet.
        Pending "Pending";
        /// Jumpstarter has given credential and endpoint; the host is chosen and noted on the Exporter.
        Credentialed "Credentialed";
        /// Config, quadlets, volume and staged binary are on the host.
        Written "Written";
        /// systemd has been reloaded and the units are active.
        Started "Started";
        /// The Exporter carries its host: the steady state.
        Annotated "Annotated";
        /// On its way out.
        Draining "Draining";
        /// Nothing is left on the host or in the cluster.
        Deleted "Deleted";
    }
    rows {
        /// Jumpstarter's credential and endpoint are there and the host is chosen.
        Granted(Grant) "granted" .granted: Pending => Credentialed;
        /// The files and the volume are on the host.
        Wrote(WrittenFiles) "wrote" .wrote: Credentialed => Written;
        /// The units are active.
        Started(RunningUnits) "started" .started: Written => Started;
        /// The Exporter carries its host.
        Annotated(AnnotatedAt) "annotated" .annotated: Started => Annotated;
        /// The host is not as it was left.
        Drifted(Drifted) "drifted" .drifted: Written | Started | Annotated => Credentialed;
        /// Something else is wanted on the host.
        Revised(Revised) "revised" .revised: Written | Started | Annotated => Credentialed;
        /// The instance has to go.
        Drained(Reason) "drained" .drained: Pending | Credentialed | Written | Started | Annotated => Draining;
        /// Everything is undone.
        TornDown(TornDown) "torn-down" .torn_down: Draining => Deleted;
    }
}

/// A transition that the table does not have: the journal does not tell a possible story.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("exporter {exporter}: no transition {} from {}; the journal is damaged or of another version", .transition.name(), .from.name())]
pub struct IllegalTransition {
    /// The Exporter's name.
    pub exporter: String,
    /// The state that it was in.
    pub from: State,
    /// What was said to follow.
    pub transition: TransitionKind,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The table as a Mermaid state diagram.
#[must_use]
pub fn mermaid() -> String {
    let mut text = String::from("stateDiagram-v2\n    [*] --> Pending: planned\n");
    for (from, transition, to) in TABLE {
        text.push_str(&format!("    {from} --> {to}: {}\n", transition.name()));
    }
    text.push_str("    Deleted --> [*]\n");
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;
    use crate::instance::fixtures;

    #[test]
    fn the_whole_matrix() {
        let mut matrix = String::new();
        for state in State::ALL {
            for transition in fixtures::transitions() {
                let kind = transition.kind();
                let next = match fixtures::in_state(*state).transition(transition) {
                    Ok(instance) => instance.state().name().to_owned(),
                    Err(error) => {
                        assert_eq!((error.from, error.transition), (*state, kind));
                        "-".to_owned()
                    }
                };
                matrix.push_str(&format!("{state:>12} + {:<10} = {next}\n", kind.name()));
            }
        }
        insta::assert_snapshot!(matrix);
    }

    #[test]
    fn the_matrix_and_the_table_agree() {
        for state in State::ALL {
            for transition in fixtures::transitions() {
                let kind = transition.kind();
                let row = TABLE
                    .iter()
                    .find(|(from, with, _)| from == state && *with == kind);
                let next = fixtures::in_state(*state).transition(transition).ok();
                assert_eq!(next.map(|next| next.state()), row.map(|(_, _, to)| *to));
            }
        }
    }

    #[test]
    fn the_architecture_shows_the_table() {
        let document =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/ARCHITECTURE.md"))
                .expect("ARCHITECTURE.md");
        let shown = document
            .split_once("```mermaid\n")
            .and_then(|(_, rest)| rest.split_once("```"))
            .map(|(diagram, _)| diagram)
            .expect("a mermaid block in ARCHITECTURE.md");
        assert_eq!(
            shown,
            mermaid(),
            "put the right-hand side into ARCHITECTURE.md"
        );
    }
}
