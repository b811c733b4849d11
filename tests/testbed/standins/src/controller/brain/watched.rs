//! What the watches tell, and what has to be looked at therefore.

use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::Event;

use super::{Brain, Item};
use crate::controller::objects::{Exporter, Lease};
use crate::controller::store::{Key, key};

impl Brain {
    /// Whether this controller looks after the namespace.
    fn is_mine(&self, (namespace, _): &Key) -> bool {
        let except = self.settings.except.as_ref();
        !except.is_some_and(|prefix| namespace.starts_with(prefix.as_str()))
    }

    pub(super) fn exporter_event(&mut self, event: Event<Exporter>) {
        match event {
            Event::Init => self.exporters.begin_list(),
            Event::InitApply(exporter) => {
                self.exporters.listed(key(&exporter));
                self.put_exporter(exporter);
            }
            Event::InitDone => {
                self.listed.insert("exporters");
                for gone in self.exporters.end_list() {
                    self.exporters.remove(&gone);
                    self.touch_waiting_leases(&gone.0);
                }
            }
            Event::Apply(exporter) => self.put_exporter(exporter),
            Event::Delete(exporter) => {
                let gone = key(&exporter);
                self.exporters.remove(&gone);
                self.touch_waiting_leases(&gone.0);
            }
        }
    }

    pub(super) fn put_exporter(&mut self, exporter: Exporter) {
        let key = key(&exporter);
        if self.is_mine(&key) && self.exporters.put(exporter) {
            self.touch_waiting_leases(&key.0);
            self.due.insert(Item::Exporter(key));
        }
    }

    /// Any change of an exporter may be what a lease of its namespace waits for.
    fn touch_waiting_leases(&mut self, namespace: &str) {
        let waiting = self
            .leases
            .in_namespace(namespace)
            .filter(|lease| !lease.is_ended() && lease.exporter().is_none());
        self.due
            .extend(waiting.map(|lease| Item::Lease(key(lease))));
    }

    pub(super) fn lease_event(&mut self, event: Event<Lease>) {
        match event {
            Event::Init => self.leases.begin_list(),
            Event::InitApply(lease) => {
                self.leases.listed(key(&lease));
                self.put_lease(lease);
            }
            Event::InitDone => {
                self.listed.insert("leases");
                for gone in self.leases.end_list() {
                    self.lease_gone(&gone);
                }
            }
            Event::Apply(lease) => self.put_lease(lease),
            Event::Delete(lease) => self.lease_gone(&key(&lease)),
        }
    }

    pub(super) fn put_lease(&mut self, lease: Lease) {
        let key = key(&lease);
        let exporter = lease
            .exporter()
            .map(|name| (key.0.clone(), name.to_owned()));
        if self.is_mine(&key) && self.leases.put(lease) {
            self.due.extend(exporter.map(Item::Exporter));
            self.due.insert(Item::Lease(key));
        }
    }

    fn lease_gone(&mut self, gone: &Key) {
        let exporter = self.leases.remove(gone).and_then(|lease| {
            lease
                .exporter()
                .map(|name| (gone.0.clone(), name.to_owned()))
        });
        self.due.extend(exporter.map(Item::Exporter));
        // The exporter that it held is free for others.
        self.touch_waiting_leases(&gone.0);
    }

    pub(super) fn secret_event(&mut self, event: Event<Secret>) {
        match event {
            Event::Init => self.secrets.begin_list(),
            Event::InitApply(secret) => {
                self.secrets.listed(key(&secret));
                self.put_secret(secret);
            }
            Event::InitDone => {
                self.listed.insert("secrets");
                for gone in self.secrets.end_list() {
                    self.secret_gone(&gone);
                }
            }
            Event::Apply(secret) => self.put_secret(secret),
            Event::Delete(secret) => self.secret_gone(&key(&secret)),
        }
    }

    pub(super) fn put_secret(&mut self, secret: Secret) {
        let exporter = exporter_of_secret(&key(&secret));
        if exporter.is_some() && self.secrets.put(secret) {
            self.due.extend(exporter.map(Item::Exporter));
        }
    }

    fn secret_gone(&mut self, gone: &Key) {
        self.secrets.remove(gone);
        self.due
            .extend(exporter_of_secret(gone).map(Item::Exporter));
    }
}

fn exporter_of_secret((namespace, name): &Key) -> Option<Key> {
    Some((
        namespace.clone(),
        name.strip_suffix("-exporter")?.to_owned(),
    ))
}
