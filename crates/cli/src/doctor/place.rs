//! Where this runs: which container, which limits, and the lines that bring uringlet there.

mod cause;
mod container;
mod limits;

pub(super) use cause::BlockCause;
pub(super) use container::ContainerRuntime;
pub(super) use limits::PlaceLimit;

/// See the module.
#[derive(Debug)]
pub(super) struct DoctorPlace {
    pub(super) runtime: Option<ContainerRuntime>,
    pub(super) cause: BlockCause,
    pub(super) limits: Vec<PlaceLimit>,
}

impl DoctorPlace {
    pub(super) fn here() -> Self {
        Self { runtime: ContainerRuntime::here(), cause: BlockCause::here(), limits: limits::here() }
    }

    /// What to put into which file, ready to be copied. In a Kubernetes pod the pod's lines come
    /// first.
    pub(super) fn lines(&self) -> [(&'static str, &'static str); 3] {
        [("Dockerfile", DOCKERFILE), ("compose.yaml", COMPOSE), ("Kubernetes pod", POD)]
    }
}

/// `docs/containers.md` has the same, run by `cargo xtask containers`.
const DOCKERFILE: &str = "\
COPY --from=uringlet / /opt/uringlet
ENV LD_PRELOAD=/opt/uringlet/lib/uringlet/liburinglet.so
ENV URINGLET=when-blocked
";

const COMPOSE: &str = "\
    environment:
      LD_PRELOAD: /opt/uringlet/lib/uringlet/liburinglet.so
      URINGLET: when-blocked
";

const POD: &str = "\
      env:
        - name: LD_PRELOAD
          value: /opt/uringlet/lib/uringlet/liburinglet.so
        - name: URINGLET
          value: when-blocked
      volumeMounts:
        - name: uringlet
          mountPath: /opt/uringlet
          readOnly: true
  volumes:
    - name: uringlet
      image:
        reference: uringlet
        pullPolicy: IfNotPresent
";
