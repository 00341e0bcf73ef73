//! What is done to the program's requests on purpose.

use std::ffi::OsStr;

use uringlet_sys::fault_plan::{self, DecisionRange, FaultPlan, ranges_from_text};
use uringlet_trace::inject;

use super::error::RunError;
use super::exec::Environment;

/// Its options.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct FaultArgs {
    /// Do something to requests or calls on purpose, for example WRITE:error=EIO:when=3+10. May be
    /// given several times
    #[arg(long, value_name = "EXPRESSION")]
    inject: Vec<String>,

    /// Treat requests as badly as the ABI allows a kernel to: short transfers, late and reordered
    /// completions, EINTR. The same seed makes the same decisions
    #[arg(long, value_name = "SEED")]
    legal: Option<u64>,

    /// Of all decisions carry out these only, as `uringlet chaos` has printed them: 0.3-7,call.2
    #[arg(long, value_name = "DECISIONS", value_parser = decisions)]
    only: Option<Decisions>,
}

#[derive(Clone, Debug)]
struct Decisions(Vec<DecisionRange>);

fn decisions(text: &str) -> Result<Decisions, String> {
    let why = "ring and numbers of decisions, as 0.3-7,call.2: commas between, first before last";
    ranges_from_text(text).map(Decisions).ok_or_else(|| why.to_owned())
}

impl FaultArgs {
    /// The plan. `None`: nothing is done to anything.
    pub(crate) fn plan(&self) -> Result<Option<FaultPlan>, RunError> {
        if self.inject.is_empty() && self.legal.is_none() {
            return if self.only.is_none() { Ok(None) } else { Err(RunError::wrong_option("--only needs --inject or --legal")) };
        }
        let rules = self.inject.iter().map(|expression| inject::parse(expression)).collect::<Result<_, _>>();
        Ok(Some(FaultPlan {
            seed: self.legal.unwrap_or(0),
            is_legal: self.legal.is_some(),
            rules: rules.map_err(RunError::wrong_option)?,
            only: self.only.clone().map(|Decisions(ranges)| ranges),
        }))
    }

    /// As `--legal SEED --inject EXPRESSION...`.
    pub(crate) fn of(seed: u64, expressions: &[String]) -> Self {
        Self { inject: expressions.to_vec(), legal: Some(seed), only: None }
    }
}

/// Hands a plan to the program and its children. Without one they keep that of the parent.
pub(super) fn export(plan: Option<&FaultPlan>, environment: &mut Environment) {
    if let Some(plan) = plan {
        environment.set(fault_plan::VARIABLE, OsStr::new(&plan.to_text()));
    }
}
