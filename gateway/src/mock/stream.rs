//! An answer as a stream, well formed or broken where the behaviour says.
//!
//! The events come out of a small state machine that hyper polls, not of a task with a channel:
//! a client that goes away drops it on the spot, and there is no second owner to stop.
//!
//! Invariants: each event is its own frame, and between two frames the connection gets a chance
//! to write, so a cut never swallows the events before it. After [`Step::End`] nothing follows.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use std::vec;

use bytes::Bytes;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval_at, sleep};

use super::LetGo;
use super::behaviour::{Behaviour, pause};
use super::reply::{Reply, Shape};

/// What the stream does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next of the events before the first token.
    Opening,
    /// The token with this number, counted from zero.
    Token(u32),
    /// The next of the events after the last token.
    Closing,
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
    reply: Reply,
    step: Step,
    /// What is left of the opening or the closing.
    frames: vec::IntoIter<Bytes>,
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
    pub(super) fn new(reply: Reply, behaviour: &Behaviour) -> Self {
        // A comment within bare sound would be noise.
        let has_comments = reply.shape != Shape::Sound;
        let heartbeat = pause(behaviour.heartbeat_ms).filter(|_| has_comments).map(|period| {
            let mut heartbeat = interval_at(Instant::now() + period, period);
            heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            heartbeat
        });
        let mut events = Self {
            frames: reply.opening().into_iter(),
            reply,
            step: Step::Opening,
            before: pause_or(Before::Nothing, pause(behaviour.first_token_ms)),
            interval: pause(behaviour.interval_ms),
            heartbeat,
            error_in_stream: behaviour.error_in_stream,
            cut_after: behaviour.cut_after_tokens,
            end_after: behaviour.finish_quietly_after_tokens,
            stall_after: behaviour.stall_after_tokens,
        };
        events.step = events.after(Step::Opening);
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
            Step::Opening | Step::Closing => self.frames.next().unwrap_or_default(),
            Step::Token(number) => self.reply.piece(number),
            Step::Error => self.reply.error().unwrap_or_default(),
            Step::Cut => return Poll::Ready(Some(Err(LetGo))),
            Step::Stall => return self.poll_heartbeat(context),
            Step::End => return Poll::Ready(None),
        };
        self.step = self.after(self.step);
        self.before = match self.step {
            Step::Token(number) if number > 0 => pause_or(Before::Turn, self.interval),
            Step::Opening
            | Step::Token(_)
            | Step::Closing
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

    fn after(&mut self, step: Step) -> Step {
        let has_frames = self.frames.len() > 0;
        match step {
            Step::Opening | Step::Closing if has_frames => step,
            Step::Opening if self.error_in_stream && self.reply.error().is_some() => Step::Error,
            Step::Opening => self.after_tokens(0),
            Step::Token(number) => self.after_tokens(number.saturating_add(1)),
            Step::Cut => Step::Cut,
            Step::Stall => Step::Stall,
            Step::Closing | Step::Error | Step::End => Step::End,
        }
    }

    fn after_tokens(&mut self, sent: u32) -> Step {
        if self.cut_after == Some(sent) {
            Step::Cut
        } else if self.end_after == Some(sent) {
            Step::End
        } else if self.stall_after == Some(sent) {
            Step::Stall
        } else if sent < self.reply.tokens {
            Step::Token(sent)
        } else {
            self.frames = self.reply.closing().into_iter();
            self.after(Step::Closing)
        }
    }
}

fn pause_or(otherwise: Before, duration: Option<Duration>) -> Before {
    duration.map_or(otherwise, |duration| Before::Pause(Box::pin(sleep(duration))))
}
