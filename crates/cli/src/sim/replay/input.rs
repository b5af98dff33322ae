// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be replayed: a built-in model, a model file or the file of a timeline becomes a
//! timeline on a machine.

use cpumodel::Platform;
use dvfs::{MODEL_FILES, Model, Timeline};
use report::problem::Problem;
use report::timeline::{self, Header, Period};
use trace::replayable::timeline_of;

use super::super::input::{bad_file, read};
use crate::failure::Failure;

/// A model or a timeline.
pub(super) enum Input {
    Model(Model),
    Timeline(Header, Vec<Period>),
}

impl Input {
    /// By the name of a built-in model or a file; a file that begins with a brace has a
    /// timeline.
    pub(super) fn open(name: &str) -> Result<Input, Failure> {
        if let Some(built_in) = Model::built_in(name) {
            return built_in.map(Input::Model).map_err(|error| bad_file(name, &error));
        }
        let known: Vec<&str> = MODEL_FILES.iter().map(|(name, _)| *name).collect();
        let next = format!("name a file, or one of the built-in models: {}", known.join(", "));
        let text = read(name, "timeline", known.iter().copied(), &next)?;
        let input = if text.trim_start().starts_with('{') {
            timeline::read(&text).map(|(header, periods)| Input::Timeline(header, periods))
        } else {
            Model::from_toml(&text).map(Input::Model)
        };
        input.map_err(|error| bad_file(name, &error))
    }

    /// What it is, as the header of a timeline.
    pub(super) fn header(&self) -> Header {
        match self {
            Input::Timeline(header, _) => header.clone(),
            Input::Model(model) => Header {
                schema: report::SCHEMA,
                timeline: model.name.clone(),
                about: model.about.clone(),
                machine: model.machine.clone(),
                active_cores: model.active_cores,
                work: model.work.clone(),
                recorded: false,
                demand: None,
            },
        }
    }

    /// Its periods on a machine.
    pub(super) fn timeline(
        &self,
        platform: &Platform,
        variant: Option<&str>,
        seed: u64,
    ) -> Result<Timeline, Failure> {
        let timeline = match self {
            Input::Model(model) => model.timeline(platform, variant, seed),
            Input::Timeline(_, periods) => variant.is_none().then(|| timeline_of(periods)),
        };
        let Some(timeline) = timeline else {
            let name = self.header().timeline;
            let has = match self {
                Input::Model(model) => model.variants().collect::<Vec<_>>().join(", "),
                Input::Timeline(..) => "none: it is a timeline".into(),
            };
            return Err(Failure::failed(Problem::new(
                format!("{name} has no variant \"{}\"", variant.unwrap_or_default()),
                format!("it has {has}"),
                "choose one of them, or leave --variant out",
            )));
        };
        let highest = timeline.max_level() as usize;
        if highest >= platform.nr_levels() {
            return Err(Failure::failed(Problem::new(
                format!("{} cannot be replayed on {}", self.header().timeline, platform.name),
                format!(
                    "it asks for level {highest}, the machine's last is {}",
                    platform.nr_levels() - 1
                ),
                format!("choose a machine that has it; it was made for {}", self.header().machine),
            )));
        }
        Ok(timeline)
    }
}

#[cfg(test)]
mod tests {
    use trace::replayable::periods_of;

    use super::*;

    /// A modelled timeline that is written to a file and read again is the same timeline.
    #[test]
    fn a_model_survives_being_written() {
        let input = Input::open("dim-nginx").unwrap_or_else(|_| panic!("it is built in"));
        let model = cpumodel::CpuModel::built_in("core-i9-7940x").unwrap().unwrap();
        let platform = Platform::new(&model);
        let timeline = input.timeline(&platform, Some("calls"), 3).unwrap();
        let text = timeline::write(&input.header(), periods_of(&timeline));
        let (header, periods) = timeline::read(&text).unwrap();
        assert_eq!(header, input.header());
        assert_eq!(timeline_of(&periods), timeline);
    }
}
