//! Errors on the wire: an errno as a gRPC status, and back.

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use uringlet_sys::Errno;

/// The trailer with the errno's number.
const KEY: &str = "errno";

fn code(errno: Errno) -> Code {
    match errno {
        Errno::ENOSPC | Errno::EDQUOT | Errno::ENOMEM => Code::ResourceExhausted,
        Errno::EOPNOTSUPP | Errno::ENOSYS => Code::Unimplemented,
        Errno::EINVAL => Code::InvalidArgument,
        Errno::EPERM | Errno::EACCES | Errno::EROFS => Code::PermissionDenied,
        Errno::EBUSY => Code::FailedPrecondition,
        _ => Code::DataLoss,
    }
}

/// What a store says of an operation that failed with `errno`.
pub(crate) fn of(errno: Errno, what: &str) -> Status {
    let mut status = Status::new(code(errno), format!("{what}: {}", std::io::Error::from_raw_os_error(errno.into_raw())));
    status.metadata_mut().insert(KEY, MetadataValue::from(errno.into_raw()));
    status
}

/// What a status means for whoever made the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It failed, and would again.
    Failed(Errno),
    /// Nobody knows what became of it: it is to be sent again, on another connection.
    Lost,
    /// The store is another process now: it is to be sent again, in another session.
    Unknown,
    /// Somebody else has the store.
    TakenAway,
}

/// See [`Meaning`].
pub(crate) fn meaning(status: &Status) -> Meaning {
    let number = status.metadata().get(KEY).and_then(|value| value.to_str().ok()?.parse::<i32>().ok());
    if let Some(number @ 1..=4095) = number {
        return Meaning::Failed(Errno::new(number));
    }
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal => Meaning::Lost,
        Code::Aborted => Meaning::Unknown,
        Code::FailedPrecondition => Meaning::TakenAway,
        Code::ResourceExhausted => Meaning::Failed(Errno::ENOSPC),
        Code::Unimplemented => Meaning::Failed(Errno::EOPNOTSUPP),
        Code::InvalidArgument => Meaning::Failed(Errno::EINVAL),
        Code::PermissionDenied => Meaning::Failed(Errno::EPERM),
        _ => Meaning::Failed(Errno::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_survives_the_wire() {
        for errno in [Errno::EIO, Errno::ENOSPC, Errno::EROFS, Errno::EBUSY, Errno::EOPNOTSUPP] {
            let response = of(errno, "writing").into_http::<()>();
            let back = Status::from_header_map(response.headers()).unwrap();
            assert_eq!(meaning(&back), Meaning::Failed(errno));
        }
    }

    #[test]
    fn stores_that_say_no_errno_are_understood() {
        assert_eq!(meaning(&Status::resource_exhausted("")), Meaning::Failed(Errno::ENOSPC));
        assert_eq!(meaning(&Status::data_loss("")), Meaning::Failed(Errno::EIO));
        assert_eq!(meaning(&Status::unavailable("")), Meaning::Lost);
        assert_eq!(meaning(&Status::aborted("")), Meaning::Unknown);
        assert_eq!(meaning(&Status::failed_precondition("")), Meaning::TakenAway);
        let mut odd = Status::data_loss("");
        odd.metadata_mut().insert(KEY, MetadataValue::from_static("-5"));
        assert_eq!(meaning(&odd), Meaning::Failed(Errno::EIO));
    }
}
