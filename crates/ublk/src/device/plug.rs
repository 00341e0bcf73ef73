//! Completions that the peers may not know of yet: like the plug of the kernel's block layer, but
//! for both directions.

use crate::frontend::BlockClient;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Plug {
    /// Clients with finished requests; the first one costs no allocation.
    client: Option<Arc<dyn BlockClient>>,
    more: Vec<Arc<dyn BlockClient>>,
    /// Commands of the server were completed.
    pub(super) has_completions: bool,
}

impl Plug {
    pub(super) fn add(&mut self, client: Arc<dyn BlockClient>) {
        if self.client.is_none() {
            self.client = Some(client);
        } else if !self.client.iter().chain(&self.more).any(|known| core::ptr::addr_eq(Arc::as_ptr(known), Arc::as_ptr(&client))) {
            self.more.push(client);
        }
    }

    /// Tells the clients that no more results come for now.
    pub(super) fn unplug_clients(&mut self) {
        self.client.take().into_iter().chain(self.more.drain(..)).for_each(|client| client.unplug());
    }
}
