//! The outcome of an intercepted call.

/// What the entries do with a call.
///
/// The layout is that of a C union of structures that begin with the tag, so an `extern "C"`
/// function returns the tag in the first result register and the value in the second: `arch` relies
/// on it.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// The engine has handled the call: the result, as the kernel would return it.
    Handled(isize) = 0,
    /// The call is left to the kernel.
    Passthrough = 1,
}

impl Disposition {
    /// Handled if the engine has a result.
    pub(crate) fn of(result: Option<isize>) -> Self {
        result.map_or(Self::Passthrough, Self::Handled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Registers {
        first: usize,
        second: isize,
    }

    extern "C" fn disposition(result: isize) -> Disposition {
        if result == 0 { Disposition::Passthrough } else { Disposition::Handled(result) }
    }

    #[test]
    fn tag_and_value_are_in_the_result_registers() {
        // SAFETY: the layout of the enum is documented; of a passthrough only the tag is read.
        let as_registers: extern "C" fn(isize) -> core::mem::MaybeUninit<Registers> =
            unsafe { core::mem::transmute(disposition as extern "C" fn(isize) -> Disposition) };
        let handled = as_registers(-9);
        let passthrough = as_registers(0);
        // SAFETY: a handled call has both fields, a passthrough the first.
        unsafe {
            assert_eq!(((*handled.as_ptr()).first, (*handled.as_ptr()).second), (0, -9));
            assert_eq!((*passthrough.as_ptr()).first, 1);
        }
    }
}
