export interface MetricFamily {
  readonly name: string
  readonly kind: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly labels: readonly string[]
  /** Upper bounds of a histogram, ascending; values above the last one count as `+Inf`. */
  readonly buckets?: readonly number[]
}

/** Buckets for model calls, rollouts and rewards: from a fast reply to a long agent. */
const longSeconds = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 600, 1800]
/** Buckets for tools and first tokens: from a function call to a slow server. */
const shortSeconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100]

/**
 * Every metric that exists, in the order of `GET /metrics`. docs/telemetry.md and the dashboard in docs/grafana name the same
 * ones; a test checks that.
 */
export const metricFamilies = {
  rollouts: counter('millrace_rollouts_total', 'Rollouts settled, by outcome.', ['environment', 'outcome']),
  rolloutsRunning: gauge('millrace_rollouts_running', 'Rollouts that run now.'),
  rolloutsWaiting: gauge('millrace_rollouts_waiting', 'Accepted rollouts that wait to start.'),
  rolloutsLost: counter('millrace_rollouts_lost_total', 'Attempts lost with their worker, by verdict.', ['verdict']),
  attempts: counter('millrace_attempts_total', 'Attempts that ended, including retried attempts and children.', [
    'environment',
    'kind',
    'outcome',
  ]),
  attemptSeconds: longHistogram(
    'millrace_attempt_duration_seconds',
    'Duration of an attempt, from setup to teardown.',
    ['environment'],
  ),
  rewardSeconds: shortHistogram('millrace_reward_duration_seconds', 'Duration of the reward of an attempt.', [
    'environment',
  ]),
  modelCalls: counter('millrace_model_calls_total', 'Model calls ended, all their tries included.', [
    'model',
    'status',
  ]),
  modelTries: counter('millrace_model_tries_total', 'Requests sent to backends.', ['model']),
  modelFailures: counter('millrace_model_failed_tries_total', 'Tries that failed, by error code.', ['model', 'cause']),
  modelTokens: counter(
    'millrace_model_tokens_total',
    'Tokens reported by backends, or estimated if a backend reports none. Input includes cached_input, output includes reasoning.',
    ['model', 'type'],
  ),
  laterTurns: counter(
    'millrace_later_turns_total',
    'Replies of rollouts that follow a reply with tokens. exact: the prompt begins with the tokens of that reply; drifted: with other tokens.',
    ['model', 'tokens'],
  ),
  driftedTokens: counter(
    'millrace_drifted_tokens_total',
    'Tokens of earlier prompts and replies from the first one on that a drifted prompt does not repeat.',
    ['model'],
  ),
  modelSeconds: longHistogram(
    'millrace_model_call_duration_seconds',
    'Duration of the last try of a complete call, on the wire.',
    ['model'],
  ),
  modelWaitSeconds: longHistogram(
    'millrace_model_call_wait_seconds',
    'How long a complete call waited before its last try.',
    ['model'],
  ),
  modelFirstTokenSeconds: shortHistogram('millrace_model_first_token_seconds', 'Time to the first token of a stream.', [
    'model',
  ]),
  modelPermits: gauge('millrace_model_permits', 'Concurrent requests that a model may have now.', ['model']),
  modelInFlight: gauge('millrace_model_requests_in_flight', 'Requests at backends now.', ['model']),
  modelWaiting: gauge('millrace_model_requests_waiting', 'Calls that wait for a permit or a rate limit.', ['model']),
  modelParked: gauge('millrace_model_requests_parked', 'Calls that wait for an overloaded backend.', ['model']),
  backendCalls: counter('millrace_backend_calls_total', 'Model calls ended, by the backend of their last try.', [
    'backend',
    'status',
  ]),
  backendSeconds: longHistogram(
    'millrace_backend_call_duration_seconds',
    'Duration of the last try of a complete call, by backend.',
    ['backend'],
  ),
  backendInFlight: gauge('millrace_backend_requests_in_flight', 'Requests at a backend of a model with several now.', [
    'model',
    'backend',
  ]),
  backendContextTokens: gauge(
    'millrace_backend_context_tokens_in_flight',
    'Tokens of the contexts of those requests, as far as they are known.',
    ['model', 'backend'],
  ),
  backendSessions: gauge('millrace_backend_sessions', 'Sessions that stay with a backend of a model with several.', [
    'model',
    'backend',
  ]),
  backendAffinityBreaks: counter(
    'millrace_backend_affinity_breaks_total',
    'Sessions that left a backend because it had more to do than the budget allows.',
    ['model', 'backend'],
  ),
  backendWeight: gauge(
    'millrace_backend_weight_ratio',
    'Share of new sessions of a backend beside one that does well. Below 1 after failures.',
    ['model', 'backend'],
  ),
  backendKvUsage: gauge(
    'millrace_backend_kv_cache_usage_ratio',
    'Use of the cache of keys and values of an engine, as it says itself.',
    ['model', 'backend'],
  ),
  backendQueued: gauge('millrace_backend_requests_queued', 'Requests in the queue of an engine, as it says itself.', [
    'model',
    'backend',
  ]),
  toolCalls: counter('millrace_tool_calls_total', 'Tool calls ended.', ['tool', 'status']),
  toolSeconds: shortHistogram('millrace_tool_call_duration_seconds', 'Duration of tool calls, successful or failed.', [
    'tool',
  ]),
  toolServerEvents: counter('millrace_tool_server_events_total', 'Events of tool servers.', [
    'server',
    'event',
    'result',
  ]),
  toolServerWaiting: gauge('millrace_tool_server_rollouts_waiting', 'Rollouts that wait for a server that is away.', [
    'server',
  ]),
  lagMax: gauge('millrace_loop_lag_max_seconds', 'Event-loop lag of the last second or two: maximum.', ['loop']),
  lagP99: gauge('millrace_loop_lag_p99_seconds', 'Event-loop lag of the last second or two: 99th percentile.', [
    'loop',
  ]),
  lagMean: gauge('millrace_loop_lag_mean_seconds', 'Event-loop lag of the last second or two: mean.', ['loop']),
  loopUtilization: gauge('millrace_loop_utilization_ratio', 'Share of time a loop ran code.', ['loop']),
  workerState: gauge('millrace_worker_state', '1 for the state a worker is in, 0 for the others.', ['worker', 'state']),
  workerRunning: gauge('millrace_worker_rollouts_running', 'Rollouts on a worker now.', ['worker']),
  workerMemory: gauge('millrace_worker_memory_bytes', 'Memory of a worker.', ['worker']),
  workerRestarts: counter('millrace_worker_restarts_total', 'How often a worker was replaced.', ['worker']),
  journalPressure: gauge(
    'millrace_journal_pressure_ratio',
    'Fill level of the queue to the disk; at 1 no new rollout starts.',
  ),
  journalCommits: counter('millrace_journal_commits_total', 'Transactions of the journal.'),
  journalEntries: counter('millrace_journal_entries_total', 'Entries of the journal.'),
  journalCommitSeconds: counter('millrace_journal_commit_seconds_total', 'Time in transactions, syncs included.'),
  journalSlowest: gauge('millrace_journal_slowest_commit_seconds', 'Duration of the slowest recent transaction.'),
  poolThreads: gauge('millrace_offload_threads', 'Threads of an offload pool.', ['pool']),
  poolQueued: gauge('millrace_offload_queued', 'Jobs that wait for a thread of an offload pool.', ['pool']),
  poolWaitP99: gauge('millrace_offload_wait_p99_seconds', 'How long jobs of an offload pool waited: 99th percentile.', [
    'pool',
  ]),
  poolWaitMax: gauge('millrace_offload_wait_max_seconds', 'How long jobs of an offload pool waited: maximum.', [
    'pool',
  ]),
  serveRequests: counter('millrace_serve_requests_total', 'Requests for rollouts accepted.'),
  serveRollouts: counter('millrace_serve_rollouts_total', 'Rollouts of the accepted requests.'),
  serveReplyP99: gauge(
    'millrace_serve_reply_p99_seconds',
    'Time to the last byte of replies made on a thread: 99th percentile.',
  ),
  gatewayRequests: counter(
    'millrace_gateway_requests_total',
    'Requests for models answered, by HTTP status (499 if the client left first) and outcome. A stream that broke has status 200.',
    ['api', 'model', 'status', 'outcome'],
  ),
  gatewaySeconds: longHistogram(
    'millrace_gateway_request_duration_seconds',
    'Duration of a request for a model, from the arrival of its body to the end of its reply.',
    ['api'],
  ),
  gatewayFirstTokenSeconds: shortHistogram(
    'millrace_gateway_first_token_seconds',
    "Time from the arrival of a request's body to the first event of its stream.",
    ['api'],
  ),
  gatewaySamples: counter('millrace_gateway_samples_total', 'Replies in sessions, by result.', ['result']),
  gatewayLaterTurns: counter(
    'millrace_gateway_later_turns_total',
    'Replies that follow a reply with tokens. exact: the prompt begins with the tokens of that reply; drifted: with other tokens.',
    ['model', 'tokens'],
  ),
  gatewaySessionsStarted: counter('millrace_gateway_sessions_started_total', 'Sessions started.'),
  gatewaySessionsEnded: counter('millrace_gateway_sessions_ended_total', 'Sessions ended, by reason.', ['why']),
  gatewayAlarms: counter(
    'millrace_gateway_session_alarms_total',
    'Sessions that ended with an unusable record, by problem.',
    ['alarm'],
  ),
  gatewaySessionsOpen: gauge('millrace_gateway_sessions_open', 'Sessions that are open.'),
  gatewayBackendsAwaited: gauge(
    'millrace_gateway_backends_awaited',
    'Backends that have not answered or cannot be used. The gateway keeps probing them.',
  ),
  gatewayBackendsPaused: gauge('millrace_gateway_backends_paused', 'Backends that are paused, or about to be.'),
  gatewayBackendVersion: gauge(
    'millrace_gateway_backend_version',
    'The version of the weights of a backend, as a label. The value is always 1.',
    ['backend', 'version'],
  ),
  gatewayFleetAlarms: counter(
    'millrace_gateway_fleet_alarms_total',
    'Pauses of backends that ended by themselves, and engines that did not resume when they were told to.',
  ),
  gatewayConnections: gauge('millrace_gateway_connections', 'Connections of clients.'),
  gatewayConnectionsMax: gauge('millrace_gateway_connections_max', 'Maximum number of client connections.'),
  gatewayTurnedAway: counter(
    'millrace_gateway_turned_away_total',
    'Connections above the maximum: the request was refused with a request to retry, or the connection was dropped.',
    ['how'],
  ),
  gatewayBodyBytes: gauge(
    'millrace_gateway_body_bytes',
    'Bytes of the bodies of requests that are being read or answered.',
  ),
  spansExported: counter('millrace_spans_exported_total', 'Spans that a collector accepted.'),
  spansDropped: counter('millrace_spans_dropped_total', 'Spans that no collector received, by reason.', ['reason']),
  processCpu: counter('process_cpu_seconds_total', 'CPU time of the supervising process and its threads.'),
  processMemory: gauge('process_resident_memory_bytes', 'Resident memory of the supervising process.'),
} as const satisfies Record<string, MetricFamily>

export type MetricKey = keyof typeof metricFamilies

function counter(name: string, help: string, labels: readonly string[] = []) {
  return { name, kind: 'counter', help, labels } as const
}

function gauge(name: string, help: string, labels: readonly string[] = []) {
  return { name, kind: 'gauge', help, labels } as const
}

function longHistogram(name: string, help: string, labels: readonly string[]) {
  return { name, kind: 'histogram', help, labels, buckets: longSeconds } as const
}

function shortHistogram(name: string, help: string, labels: readonly string[]) {
  return { name, kind: 'histogram', help, labels, buckets: shortSeconds } as const
}
