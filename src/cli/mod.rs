//! The command line: arguments in, one document out.
//!
//! One file a verb for its options; `output` alone writes standard output. A command line that
//! can't be read ends with a document as well.
#![deny(missing_docs)]

mod args;
mod doctor;
mod ending;
mod key;
mod output;
mod policy;
mod recover;
mod rollback;
mod run;
mod schema;
mod session;
mod store;
mod text;

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::{Arc, Mutex},
};

use args::{Cli, Verb};
use ending::{Ending, Who};
use output::{Output, Product};

use crate::{
    app::{self, Ended, Fail, logging, run::Stop},
    host::{Host, signals},
};

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let host = Host::real();
    let ending = Arc::new(Ending::new());
    let cli = match args::parse(&host) {
        Ok(cli) => cli,
        Err(bad) => return without_verb(&host, *bad, &ending),
    };
    let verb = cli.verb.name();
    let output = Output::of(&cli.common, &ending);
    let redactor = app::redactor(&host, &cli.secret_variables());
    logging::init(Arc::clone(&redactor), cli.common.loudness(), cli.common.log_format.into());
    let heard = if cli.verb.takes_time() || output.has_file() {
        let verb = Some(verb.to_owned());
        listen(&ending, Who { output: output.clone(), verb, redactor: Arc::clone(&redactor) })
    } else {
        Ok(signals::unheard())
    };
    let place = watch_panics();
    let done = catch_unwind(AssertUnwindSafe(|| dispatch(&host, &redactor, cli, &output, heard)));
    let product = done.unwrap_or_else(|_| {
        let place = place.lock().ok().and_then(|place| place.clone());
        Err(app::panicked(place.as_deref()))
    });
    let product = product.unwrap_or_else(|fail| Product::Document(fail.ended(Some(verb))));
    output.print(&redactor, product)
}

/// Ends a command line that asks for help, or that is wrong.
fn without_verb(host: &Host, bad: args::NotAVerb, ending: &Arc<Ending>) -> ExitCode {
    let args::NotAVerb { output, verb, end } = bad;
    let output = output.ending_with(ending);
    let fail = match end {
        args::NoVerb::Text(text) => return output.print_help(&text),
        args::NoVerb::Fail(fail) => fail,
    };
    let redactor = app::redactor(host, &[]);
    logging::init(Arc::clone(&redactor), logging::Loudness::Normal, logging::LogFormat::Text);
    let product = Product::Document(fail.ended(verb.as_deref()));
    if output.has_file()
        && let Err(error) =
            listen(ending, Who { output: output.clone(), verb, redactor: Arc::clone(&redactor) })
    {
        // The usage error is the news; a signal ends the process as it ends any other.
        tracing::debug!("signals aren't heard: {error}");
    }
    output.check_anyway(host);
    output.print(&redactor, product)
}

/// Listens to signals, which takes threads: only where there is something that a signal could cut
/// off.
fn listen(ending: &Arc<Ending>, who: Who) -> io::Result<Stop> {
    let ending = Arc::clone(ending);
    signals::listen(move |signal| ending.answer(signal, &who))
}

fn dispatch(
    host: &Host,
    redactor: &app::Redactor,
    cli: Cli,
    output: &Output,
    heard: io::Result<Stop>,
) -> Result<Product, Fail> {
    let common = cli.common.app();
    output.spare(host, &cli.inputs(), &common.state)?;
    output.check()?;
    if cli.verb.takes_time() {
        output.begin(redactor, cli.verb.name());
    }
    let stop = heard.map_err(|error| app::run::cannot_start(&error))?;
    if host.fault("panic") {
        panic_on_purpose();
    }
    match cli.verb {
        Verb::Run(run) => {
            run::dispatch(host, redactor, &common, *run, output, stop).map(Product::Document)
        }
        Verb::Policy(policy) => policy::dispatch(host, &common, policy).map(Product::Document),
        Verb::Schema(schema) => schema::dispatch(schema),
        Verb::Session(session) => session::dispatch(host, &common, session).map(Product::Document),
        Verb::Recover(args) => recover::dispatch(host, &common, args).map(Product::Document),
        Verb::Rollback(verb) => {
            rollback::dispatch(host, &common, verb, output, &stop).map(Product::Document)
        }
        Verb::Store(store) => store::dispatch(host, &common, store).map(Product::Document),
        Verb::Key(key) => key::dispatch(host, key),
        Verb::Doctor(doctor) => doctor::dispatch(host, &common, &doctor).map(Product::Document),
        Verb::ExplainExit { code } => {
            app::explain_exit::explain(code).map(|text| Product::Text { verb: "explain-exit", text })
        }
    }
}

/// Notes where a panic came from; its message could hold content, so it isn't kept.
fn watch_panics() -> Arc<Mutex<Option<String>>> {
    let place = Arc::new(Mutex::new(None));
    let noted = Arc::clone(&place);
    std::panic::set_hook(Box::new(move |info| {
        if let (Ok(mut place), Some(location)) = (noted.lock(), info.location()) {
            *place = Some(format!("{}:{}", location.file(), location.line()));
        }
    }));
    place
}

/// The fault that tests ask for, to see that a panic ends with a document.
#[expect(clippy::panic, reason = "reached only in builds with fault-injection")]
fn panic_on_purpose() {
    panic!("asked for");
}

/// A verb's document, where the verb can't fail otherwise.
type Done = Result<Ended, Fail>;
