//! What `decide` answers: the decision, and what it rests on.

/// The answer to a call. Every verdict names a rule, the matrix, the floor, a limit or the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What the policy says.
    pub decision: Decision,
    /// What decided.
    pub because: Because,
    /// The stable kebab-case token of a floor, limit, bad-arguments or unresolved cause.
    pub cause: Option<&'static str>,
    /// The rule that decided, where one did.
    pub rule: Option<RuleRef>,
    /// Why, in a sentence that the model and the reader of a log are told.
    pub reason: String,
    /// What to do instead, where the rule or the floor says so.
    pub suggest: Option<String>,
    /// The index of the subject that decided, where one did.
    pub subject: Option<usize>,
}

impl Verdict {
    /// A verdict that rests on no rule; cause and suggestion are the caller's to add.
    pub fn of(decision: Decision, because: Because, reason: String) -> Self {
        Self { decision, because, cause: None, rule: None, reason, suggest: None, subject: None }
    }

    /// Whether the call may run: `ask` is never a yes.
    pub fn allows(&self) -> bool {
        self.decision == Decision::Allow
    }
}

/// The strictest last, so that `max` of two decisions is the stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Decision {
    /// The call may run.
    Allow,
    /// A person would have to be asked.
    Ask,
    /// The call may not run.
    Deny,
}

/// What a verdict rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Because {
    /// A named rule.
    Rule,
    /// The built-in matrix.
    Matrix,
    /// A hard boundary.
    Floor,
    /// No rule grants it.
    Default,
    /// The subject can't be pinned down.
    Unresolved,
    /// The arguments are over a limit.
    Limit,
    /// The arguments can't be read.
    BadArguments,
}

/// A rule, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleRef {
    /// Its id.
    pub id: String,
    /// Its file, as it was named.
    pub file: String,
    /// Its line, from 1.
    pub line: u32,
}
