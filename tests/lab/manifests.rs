//! The manifests of the documentation, with the testbed's host and images.

use super::harness::Lab;

/// What a test changes in them.
pub(crate) struct Pool {
    pub(crate) set: String,
    pub(crate) class: String,
    pub(crate) secret: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) min_available: u32,
    pub(crate) cooldown: String,
    /// Further lines of the set's `spec.parameters`, as a YAML flow mapping.
    pub(crate) parameters: String,
}

impl Pool {
    pub(crate) fn on(lab: &Lab, host: u8) -> Self {
        Self {
            set: lab.unique("pool"),
            class: "qemu-ssh-aarch64".to_owned(),
            secret: "lab-ssh-key".to_owned(),
            host: lab.testbed.host(host).to_owned(),
            port: 22,
            min_available: 1,
            cooldown: "5m".to_owned(),
            parameters: "{}".to_owned(),
        }
    }

    /// A lab in which the manifests have been applied, with what `change` changes in them.
    pub(crate) async fn in_lab(
        name: &str,
        host: u8,
        change: impl FnOnce(&mut Self),
    ) -> (Lab, Self) {
        let lab = Lab::new(name).await;
        let mut pool = Self::on(&lab, host);
        change(&mut pool);
        lab.secret("lab-ssh-key", "TESTBED_SSH_KEY");
        lab.apply(&pool.both(&lab));
        (lab, pool)
    }

    pub(crate) fn class(&self, lab: &Lab) -> String {
        let Self {
            class,
            secret,
            host,
            port,
            ..
        } = self;
        let exporter = lab.testbed.get("TESTBED_EXPORTER_IMAGE");
        let runtime = lab.testbed.get("TESTBED_RUNTIME_IMAGE");
        format!(
            r#"
apiVersion: virtualtarget.jumpstarter.dev/v1alpha1
kind: VirtualTargetClass
metadata: {{name: {class}}}
spec:
  provisioner: qemu-ssh.jumpstarter.dev
  credentialsSecretRef: {{name: {secret}}}
  bindingMode: Immediate
  reclaimPolicy: Delete
  images:
    exporter: {{image: "{exporter}"}}
    runtime: {{image: "{runtime}"}}
  parameters:
    ssh: {{user: root, port: {port}}}
    host: {{name: "{host}"}}
    runtime: {{kvm: true}}
    arch: aarch64
    resources: {{cpu: 4, memory: 4Gi}}
    storage: {{size: 16Gi}}
"#
        )
    }

    pub(crate) fn set(&self) -> String {
        let Self {
            set,
            class,
            min_available,
            cooldown,
            parameters,
            ..
        } = self;
        format!(
            r#"
apiVersion: virtualtarget.jumpstarter.dev/v1alpha1
kind: ExporterSet
metadata: {{name: {set}}}
spec:
  minReplicas: 0
  maxReplicas: 4
  minAvailableReplicas: {min_available}
  scaleDownCooldown: {cooldown}
  recycleStrategy: ExitAndReplace
  virtualTargetClassName: {class}
  parameters: {parameters}
  selector: {{matchLabels: {{board: aarch64-qemu, virtual: "true"}}}}
  template:
    metadata: {{labels: {{board: aarch64-qemu, arch: aarch64, virtual: "true"}}}}
    spec:
      drivers:
        - {{name: qemu, type: jumpstarter_driver_qemu.driver.Qemu}}
"#
        )
    }

    pub(crate) fn both(&self, lab: &Lab) -> String {
        format!("{}---{}", self.class(lab), self.set())
    }
}
