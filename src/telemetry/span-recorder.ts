import { modelCalls, type ModelCall, type ModelCallEvent } from '../inference/index.ts'
import { rolloutEvents, type RolloutEndEvent, type RolloutStartEvent } from '../rollout/index.ts'
import { outcomes } from '../schema/index.ts'
import { toolCalls, type ToolCallEvent } from '../tools/index.ts'
import { RolloutTrace, spanIdOf, traceparentOf } from './rollout-trace.ts'
import { type Span, spanJson, spanKinds } from './span.ts'

interface SpanRecorderOptions {
  readonly run: string
  readonly worker: string | undefined
  /** Takes a span as OTLP/JSON. */
  readonly onSpan: (json: string) => void
}

type ModelCallEnd = Extract<ModelCallEvent, { readonly kind: 'end' }>

/**
 * Makes spans of the rollouts of this thread: one for an attempt, below it one for each model call, tool call and child. Spans
 * never hold what was said.
 */
export class SpanRecorder implements Disposable {
  readonly #options: SpanRecorderOptions
  readonly #subscriptions = new DisposableStack()

  constructor(options: SpanRecorderOptions) {
    this.#options = options
    this.#subscriptions.use(
      rolloutEvents.subscribe((event) =>
        event.kind === 'start' ? this.#onRolloutStart(event) : this.#onRolloutEnd(event),
      ),
    )
    this.#subscriptions.use(
      modelCalls.subscribe((event) => {
        if (event.kind === 'start') this.#onCallStart(event.call)
        else if (event.kind === 'end') this.#onCallEnd(event)
      }),
    )
    this.#subscriptions.use(toolCalls.subscribe((event) => this.#onToolCall(event)))
  }

  [Symbol.dispose](): void {
    this.#subscriptions.dispose()
  }

  #onRolloutStart(event: RolloutStartEvent): void {
    const { id, job, run = this.#options.run } = event
    if (event.trace || run !== this.#options.run) return
    event.trace = new RolloutTrace(this, { run, id, job, parent: this.#own(event.parent) })
  }

  #onRolloutEnd({ record, trace: carried }: RolloutEndEvent): void {
    const trace = this.#own(carried)
    if (!trace) return
    const { run, worker } = this.#options
    const { usage, outcome } = record
    const error = outcomes[outcome].scored ? undefined : (record.error?.code ?? outcome)
    this.#record(trace, {
      spanId: trace.spanId,
      parentSpanId: trace.parentSpanId,
      name: `invoke_agent ${record.environment}`,
      kind: spanKinds.internal,
      startedAt: trace.startedAt,
      endedAt: performance.now(),
      error,
      attributes: {
        'gen_ai.operation.name': 'invoke_agent',
        'gen_ai.provider.name': 'millrace',
        'gen_ai.agent.name': record.environment,
        'gen_ai.conversation.id': record.id,
        'gen_ai.request.model': record.model,
        'gen_ai.usage.input_tokens': usage.input,
        'gen_ai.usage.cache_read.input_tokens': usage.cachedInput,
        'gen_ai.usage.output_tokens': usage.output,
        'gen_ai.usage.reasoning.output_tokens': usage.reasoning,
        'error.type': error,
        'millrace.run': run,
        'millrace.worker': worker,
        'millrace.rollout': record.id,
        'millrace.attempt': record.attempt,
        'millrace.group': record.task.id,
        'millrace.task.index': record.task.index,
        'millrace.sample': record.sample,
        'millrace.resumed': trace.job.recording?.purpose === 'resume',
        'millrace.outcome': outcome,
        'millrace.truncated': record.truncated,
        'millrace.reward': record.reward,
        'millrace.turns': record.turns,
        'millrace.cost_usd': record.cost,
      },
    })
  }

  #onCallStart(call: ModelCall): void {
    const trace = this.#own(call.request.trace)
    if (trace) call.traceparent = traceparentOf(trace.traceId, trace.nextSpanId())
  }

  #onCallEnd({ call, reply, provider }: ModelCallEnd): void {
    const trace = this.#own(call.request.trace)
    // A call without a traceparent started before this recorder listened.
    if (!trace || call.traceparent === undefined) return
    const { sampling, sessionId } = call.request
    const error = reply.status === 'complete' ? undefined : reply.error.code
    this.#record(trace, {
      spanId: spanIdOf(call.traceparent),
      parentSpanId: trace.spanId,
      name: `chat ${call.model}`,
      kind: spanKinds.client,
      startedAt: call.startedAt,
      endedAt: performance.now(),
      error,
      attributes: {
        'gen_ai.operation.name': 'chat',
        'gen_ai.provider.name': provider,
        'gen_ai.conversation.id': sessionId,
        'gen_ai.request.model': call.model,
        'gen_ai.request.max_tokens': sampling.maxTokens,
        'gen_ai.request.temperature': sampling.temperature,
        'gen_ai.request.top_p': sampling.topP,
        'gen_ai.request.seed': sampling.seed,
        'error.type': error,
        'millrace.run': this.#options.run,
        'millrace.rollout': trace.job.id,
        'millrace.backend': reply.backend,
        'millrace.tries': reply.tries,
        'millrace.wait_seconds': reply.waitMs / 1000,
        ...(reply.status === 'complete' && {
          'gen_ai.response.finish_reasons': [reply.finishReason],
          'gen_ai.response.time_to_first_chunk': reply.firstTokenMs === undefined ? null : reply.firstTokenMs / 1000,
          'gen_ai.usage.input_tokens': reply.usage.input,
          'gen_ai.usage.cache_read.input_tokens': reply.usage.cachedInput,
          'gen_ai.usage.output_tokens': reply.usage.output,
          'gen_ai.usage.reasoning.output_tokens': reply.usage.reasoning,
          'millrace.weight_version': reply.tokens?.version,
        }),
      },
    })
  }

  #onToolCall({ trace: carried, tool, callId, status, startedAt, ms }: ToolCallEvent): void {
    const trace = this.#own(carried)
    if (!trace) return
    const error = status === 'ok' ? undefined : status
    // A name that no tool has was written by the model, so it is left out.
    const name = status === 'unknown_tool' ? undefined : tool
    this.#record(trace, {
      spanId: trace.nextSpanId(),
      parentSpanId: trace.spanId,
      name: name === undefined ? 'execute_tool' : `execute_tool ${name}`,
      kind: spanKinds.internal,
      startedAt,
      endedAt: startedAt + ms,
      error,
      attributes: {
        'gen_ai.operation.name': 'execute_tool',
        'gen_ai.tool.name': name,
        'gen_ai.tool.type': 'function',
        'gen_ai.tool.call.id': callId,
        'error.type': error,
        'millrace.run': this.#options.run,
        'millrace.rollout': trace.job.id,
        'millrace.tool.status': status,
      },
    })
  }

  /** The trace that travels with a rollout, if this recorder made it. */
  #own(trace: object | undefined): RolloutTrace | undefined {
    return trace instanceof RolloutTrace && trace.owner === this ? trace : undefined
  }

  #record(
    { traceId, epochMs }: RolloutTrace,
    {
      startedAt,
      endedAt,
      ...span
    }: Omit<Span, 'traceId' | 'startMs' | 'endMs'> & { startedAt: number; endedAt: number },
  ): void {
    this.#options.onSpan(spanJson({ ...span, traceId, startMs: epochMs + startedAt, endMs: epochMs + endedAt }))
  }
}
