//! An answer as server-sent events, well formed or broken where the behaviour says.
//!
//! The events come out of a small state machine that hyper polls, not of a task with a channel:
//! a client that goes away drops it on the spot, and there is no second owner to stop.
//!
//! Invariants: each event is its own frame, and between two frames the connection gets a chance
//! to write, so a cut never swallows the events before it. After [`Step::End`] nothing follows.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep};

use super::LetGo;
use super::answer::{Completion, Shape, error_value};
use super::behaviour::{Behaviour, pause};

/// What the stream does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Role,
    /// The token with this number, counted from zero.
    Token(u32),
    Finish,
    Usage,
    Done,
    Error,
    /// The connection is to be let go in the middle of the message.
    Cut,
    /// Nothing more, but the connection stays.
    Stall,
    End,
}

/// What stands before the next step.
enum Before {
    Nothing,
    /// One turn for the connection, to write out the event before.
    Turn,
    Pause(Pin<Box<Sleep>>),
}

/// The events of one answer.
pub(super) struct Events {
    completion: Completion,
    step: Step,
    before: Before,
    interval: Option<Duration>,
    heartbeat: Option<Interval>,
    error_in_stream: bool,
    cut_after: Option<u32>,
    end_after: Option<u32>,
    stall_after: Option<u32>,
}

impl Events {
    /// Prepares the events; the first pause starts here, which is when the head is sent.
    pub(super) fn new(completion: Completion, behaviour: &Behaviour) -> Self {
        let heartbeat = pause(behaviour.heartbeat_ms).map(|period| {
            let mut heartbeat = interval_at(Instant::now() + period, period);
            heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            heartbeat
        });
        let mut events = Self {
            completion,
            step: Step::Role,
            before: pause_or(Before::Nothing, pause(behaviour.first_token_ms)),
            interval: pause(behaviour.interval_ms),
            heartbeat,
            error_in_stream: behaviour.error_in_stream,
            cut_after: behaviour.cut_after_tokens,
            end_after: behaviour.finish_quietly_after_tokens,
            stall_after: behaviour.stall_after_tokens,
        };
        events.step = match events.completion.shape {
            Shape::Chat => Step::Role,
            // A text completion has no role to announce.
            Shape::Text => events.after(Step::Role),
        };
        events
    }

    /// Tells whether all events are out and the message ends in good order.
    pub(super) fn is_ended(&self) -> bool {
        self.step == Step::End
    }

    /// Returns the next event's bytes, or the order to let the connection go.
    pub(super) fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, LetGo>>> {
        match &mut self.before {
            Before::Nothing => {}
            Before::Turn => {
                self.before = Before::Nothing;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Before::Pause(sleep) => {
                if sleep.as_mut().poll(context).is_pending() {
                    return self.poll_heartbeat(context);
                }
                self.before = Before::Nothing;
            }
        }
        let event = match self.step {
            Step::Role => data(&self.completion.role_chunk()),
            Step::Token(number) => data(&self.completion.token_chunk(number)),
            Step::Finish => data(&self.completion.finish_chunk()),
            Step::Usage => data(&self.completion.usage_chunk()),
            Step::Done => Bytes::from_static(b"data: [DONE]\n\n"),
            Step::Error => data(&error_value(500, "The mock was told to fail in the stream.")),
            Step::Cut => return Poll::Ready(Some(Err(LetGo))),
            Step::Stall => return self.poll_heartbeat(context),
            Step::End => return Poll::Ready(None),
        };
        self.step = self.after(self.step);
        self.before = match self.step {
            Step::Token(number) if number > 0 => pause_or(Before::Turn, self.interval),
            Step::Role
            | Step::Token(_)
            | Step::Finish
            | Step::Usage
            | Step::Done
            | Step::Error
            | Step::Cut
            | Step::Stall
            | Step::End => Before::Turn,
        };
        Poll::Ready(Some(Ok(event)))
    }

    fn poll_heartbeat(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, LetGo>>> {
        let Some(heartbeat) = &mut self.heartbeat else {
            return Poll::Pending;
        };
        ready!(heartbeat.poll_tick(context));
        Poll::Ready(Some(Ok(Bytes::from_static(b": heartbeat\n\n"))))
    }

    fn after(&self, step: Step) -> Step {
        match step {
            Step::Role if self.error_in_stream => Step::Error,
            Step::Role => self.after_tokens(0),
            Step::Token(number) => self.after_tokens(number.saturating_add(1)),
            Step::Finish if self.completion.include_usage => Step::Usage,
            Step::Finish | Step::Usage => Step::Done,
            Step::Cut => Step::Cut,
            Step::Stall => Step::Stall,
            Step::Done | Step::Error | Step::End => Step::End,
        }
    }

    fn after_tokens(&self, sent: u32) -> Step {
        if self.cut_after == Some(sent) {
            Step::Cut
        } else if self.end_after == Some(sent) {
            Step::End
        } else if self.stall_after == Some(sent) {
            Step::Stall
        } else if sent < self.completion.tokens {
            Step::Token(sent)
        } else {
            Step::Finish
        }
    }
}

fn pause_or(otherwise: Before, duration: Option<Duration>) -> Before {
    duration.map_or(otherwise, |duration| Before::Pause(Box::pin(sleep(duration))))
}

fn data(event: &Value) -> Bytes {
    Bytes::from(format!("data: {event}\n\n"))
}
