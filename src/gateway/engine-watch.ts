import type { BackendConfig, EngineLoad, HttpBackend, Model } from '../inference/index.ts'
import { Resource } from '../kit/index.ts'

type EngineName = NonNullable<BackendConfig['engine']>

/** The metrics of the engines. Older versions of vLLM have another name for the first. */
const metrics: Readonly<
  Record<EngineName, { readonly kvUsage: readonly string[]; readonly queued: readonly string[] }>
> = {
  vllm: {
    kvUsage: ['vllm:kv_cache_usage_perc', 'vllm:gpu_cache_usage_perc'],
    queued: ['vllm:num_requests_waiting'],
  },
  sglang: { kvUsage: ['sglang:token_usage'], queued: ['sglang:num_queue_reqs'] },
}

interface WatchedBackend {
  readonly config: BackendConfig
  readonly backend: HttpBackend
}

interface EngineWatchOptions {
  readonly model: Pick<Model, 'noteEngineLoad'>
  readonly intervalMs?: number
}

/** Often enough for a queue to matter before it is long; an engine writes its metrics in some milliseconds. */
const defaultIntervalMs = 2000

/**
 * Asks the engines of a model with several backends how much they have to do, all at once, and tells the model. Each has one
 * such request on its way at most. An engine without the metrics is not asked again.
 */
export class EngineWatch extends Resource {
  readonly #options: EngineWatchOptions
  readonly #asked = new Set<WatchedBackend>()
  readonly #silent = new WeakSet<HttpBackend>()
  #watched: readonly WatchedBackend[] = []
  #timer: NodeJS.Timeout | undefined

  constructor(options: EngineWatchOptions) {
    super()
    this.#options = options
  }

  /** Watches these backends from now on, if there is a choice between them. */
  watch(backends: readonly WatchedBackend[]): void {
    this.#watched = backends.length > 1 ? backends.filter(({ config }) => config.engine !== undefined) : []
    clearInterval(this.#timer)
    this.#timer = undefined
    if (this.#watched.length === 0 || this.isClosed) return
    this.#timer = setInterval(() => this.#askAll(), this.#options.intervalMs ?? defaultIntervalMs).unref()
  }

  protected override onClose(): void {
    clearInterval(this.#timer)
  }

  #askAll(): void {
    for (const each of this.#watched) {
      if (!this.#asked.has(each) && !this.#silent.has(each.backend)) void this.#ask(each)
    }
  }

  async #ask(watched: WatchedBackend): Promise<void> {
    const { backend, config } = watched
    this.#asked.add(watched)
    try {
      const answer = await backend.ask(`${backend.base.replace(/\/v1$/, '')}/metrics`, this.closedSignal)
      const load = typeof answer.document === 'string' ? readLoad(answer.document, config.engine) : undefined
      if (!load && answer.status < 500) this.#silent.add(backend)
      if (!this.isClosed) this.#options.model.noteEngineLoad(backend, load)
    } catch {
      // It is away, which its requests find out, too.
      if (!this.isClosed) this.#options.model.noteEngineLoad(backend, undefined)
    } finally {
      this.#asked.delete(watched)
    }
  }
}

/** Undefined if the metrics are not those of the engine. A server with several engines names each: one full cache is enough. */
function readLoad(text: string, engine: EngineName = 'vllm'): EngineLoad | undefined {
  const { kvUsage, queued } = metrics[engine]
  const usages = kvUsage.flatMap((name) => valuesOf(text, name))
  const queues = queued.flatMap((name) => valuesOf(text, name))
  if (usages.length === 0 && queues.length === 0) return undefined
  return { kvUsage: Math.max(0, ...usages), queued: queues.reduce((sum, value) => sum + value, 0) }
}

/** The values of all series of a metric in Prometheus' text format. */
function valuesOf(text: string, name: string): number[] {
  const values: number[] = []
  for (let at = text.indexOf(name); at !== -1; at = text.indexOf(name, at + name.length)) {
    const isLineStart = at === 0 || text[at - 1] === '\n'
    const next = text[at + name.length]
    if (!isLineStart || (next !== '{' && next !== ' ')) continue
    const end = text.indexOf('\n', at)
    const line = text.slice(at, end === -1 ? undefined : end)
    // A time may follow the value.
    const [value = ''] = line
      .slice(next === '{' ? line.lastIndexOf('}') + 1 : name.length)
      .trimStart()
      .split(' ')
    if (Number.isFinite(Number(value))) values.push(Number(value))
  }
  return values
}
