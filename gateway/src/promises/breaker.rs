//! The breaker under any schedule: what its own tests promise of random ones.
//!
//! It is their world and their steps, read as bytes, so that a fuzzer can choose among them.

#![expect(
    dead_code,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "the world of a test may stop loudly, and does more than is asked for here"
)]

#[path = "../../breaker/tests/properties/chance.rs"]
mod chance;
#[path = "../../breaker/tests/properties/world.rs"]
mod world;

use breaker::Breaker;

use self::chance::{Chance, some_pause, some_step};
use self::world::World;

/// Most steps of one schedule, so that it takes no longer than a millisecond.
const STEPS_MAX: usize = 200;

/// The bytes choose a rule, then steps and pauses until they are used up. Then the process stops and
/// starts again, and what took over lives on for as many steps by chance.
pub(super) fn schedules(bytes: &[u8]) {
    let chance = &mut Chance { state: 0, said: Vec::from(bytes).into_iter() };
    let mut world = World::new(chance);
    let mut steps = 0;
    while steps < STEPS_MAX && chance.said.len() > 0 {
        step(&mut world, chance);
        steps += 1;
    }
    let snapshot = world.breaker.snapshot(world.now);
    let later = world.now + some_pause(chance);
    let heir = Breaker::restore(world.rule.clone(), 7, &snapshot, later);
    let mut world = world.after_restart(heir, later);
    for _ in 0..steps {
        step(&mut world, chance);
    }
}

fn step(world: &mut World, chance: &mut Chance) {
    let pause = some_pause(chance);
    let step = some_step(chance, world.permits.len());
    world.step(step, world.now + pause);
    world.check_bounds();
}
