//! Errors on the wire: an errno as a gRPC status, and back.

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use uringlet_sys::Errno;

/// The trailer with the errno.
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

/// The status of an operation that failed with `errno`.
pub(crate) fn of(errno: Errno, what: &str) -> Status {
    let mut status = Status::new(code(errno), format!("{what}: {}", std::io::Error::from_raw_os_error(errno.into_raw())));
    status.metadata_mut().insert(KEY, MetadataValue::from(errno.into_raw()));
    status
}

/// What a client does about a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// The request fails; a repetition would fail too.
    Permanent(Errno),
    /// The outcome is unknown: repeat the request on another connection.
    Retry,
    /// The store was restarted: repeat the request in another session.
    UnknownSession,
    /// Another client has the store.
    TakenOver,
}

/// See [`ErrorClass`].
pub(crate) fn classify(status: &Status) -> ErrorClass {
    let number = status.metadata().get(KEY).and_then(|value| value.to_str().ok()?.parse::<i32>().ok());
    if let Some(number @ 1..=4095) = number {
        return ErrorClass::Permanent(Errno::new(number));
    }
    match status.code() {
        Code::Unavailable | Code::Unknown | Code::Cancelled | Code::Internal => ErrorClass::Retry,
        Code::Aborted => ErrorClass::UnknownSession,
        Code::FailedPrecondition => ErrorClass::TakenOver,
        Code::ResourceExhausted => ErrorClass::Permanent(Errno::ENOSPC),
        Code::Unimplemented => ErrorClass::Permanent(Errno::EOPNOTSUPP),
        Code::InvalidArgument => ErrorClass::Permanent(Errno::EINVAL),
        Code::PermissionDenied => ErrorClass::Permanent(Errno::EPERM),
        _ => ErrorClass::Permanent(Errno::EIO),
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
            assert_eq!(classify(&back), ErrorClass::Permanent(errno));
        }
    }

    #[test]
    fn statuses_without_an_errno_are_classified_by_code() {
        assert_eq!(classify(&Status::resource_exhausted("")), ErrorClass::Permanent(Errno::ENOSPC));
        assert_eq!(classify(&Status::data_loss("")), ErrorClass::Permanent(Errno::EIO));
        assert_eq!(classify(&Status::unavailable("")), ErrorClass::Retry);
        assert_eq!(classify(&Status::aborted("")), ErrorClass::UnknownSession);
        assert_eq!(classify(&Status::failed_precondition("")), ErrorClass::TakenOver);
        let mut odd = Status::data_loss("");
        odd.metadata_mut().insert(KEY, MetadataValue::from_static("-5"));
        assert_eq!(classify(&odd), ErrorClass::Permanent(Errno::EIO));
    }
}
