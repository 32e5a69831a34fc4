import { HttpBackend, type BackendConfig, type ModelConfig } from '../../inference/index.ts'
import { MillraceError } from '../../errors/index.ts'
import { AbortScope, closeAll, Resource, type Variables } from '../../kit/index.ts'

/** What was found holds for so long, however often it is asked for. */
const freshMs = 5_000
const answerTimeoutMs = 2_000

export interface ReachabilityOptions {
  /** Whether a backend has requests under way, or answered one within so many milliseconds. It is not asked then. */
  readonly isActive?: (backend: string, withinMs: number) => boolean
  /** False: no backend is asked, and each counts as reachable until requests to it fail. */
  readonly polls?: boolean
  /** What must not be shown if a backend says it. */
  readonly secrets?: readonly string[]
}

/** Whether backends can be reached, asked for by those who want to know if a gateway is ready. */
export class Reachability extends Resource {
  readonly #env: Variables
  readonly #options: ReachabilityOptions
  /** One for all models that it serves to the same key. */
  #backends: ReadonlyMap<string, HttpBackend> = new Map()
  readonly #leaving = new Set<HttpBackend>()
  #urls: readonly string[] = []
  #hasSimulator = false
  #lookedAt = -Infinity
  #found: Promise<boolean> = Promise.resolve(false)

  constructor(models: readonly ModelConfig[], env: Variables, options: ReachabilityOptions = {}) {
    super()
    this.#env = env
    this.#options = options
    this.watch(models)
  }

  get count(): number {
    return this.#backends.size
  }

  /** The backends of these from now on. */
  watch(models: readonly ModelConfig[]): void {
    if (this.isClosed) return
    const before = this.#backends
    const backends = new Map<string, HttpBackend>()
    using opened = new DisposableStack()
    const open = (model: ModelConfig, backend: BackendConfig): HttpBackend => {
      const own = new HttpBackend(model, backend, this.#env, { connections: 1, secrets: this.#options.secrets })
      opened.defer(() => void own.close())
      return own
    }
    for (const model of models) {
      for (const backend of model.backends) {
        const { url, apiKeyEnv, headers } = backend
        const identity = JSON.stringify([url, model.api, this.#env[apiKeyEnv], headers])
        const known = backends.get(identity) ?? before.get(identity)
        backends.set(identity, known ?? open(model, backend))
      }
    }
    // Only now do they stay: where one cannot be opened, all is as it was.
    opened.move()
    this.#backends = backends
    this.#urls = models.flatMap((model) => model.backends.map(({ url }) => url))
    this.#hasSimulator = models.some(({ simulator }) => simulator !== undefined)
    for (const [identity, backend] of before) if (!backends.has(identity)) this.#leave(backend)
    this.#lookedAt = -Infinity
  }

  /** Whether at least one backend would answer a request. */
  async any(): Promise<boolean> {
    const { isActive, polls = true } = this.#options
    if (this.#hasSimulator || (!polls && this.count > 0)) return true
    if (isActive && this.#urls.some((url) => isActive(url, freshMs))) return true
    if (performance.now() - this.#lookedAt > freshMs) {
      this.#lookedAt = performance.now()
      this.#found = this.#look()
    }
    return await this.#found
  }

  protected async onClose(): Promise<void> {
    await closeAll([...this.#backends.values(), ...this.#leaving])
  }

  #leave(backend: HttpBackend): void {
    this.#leaving.add(backend)
    // One that cannot be closed stays, and is reported when all are.
    backend.close().then(
      () => this.#leaving.delete(backend),
      () => {},
    )
  }

  /** The first good answer decides; only the last bad one does. */
  async #look(): Promise<boolean> {
    using scope = new AbortScope(this.closedSignal, answerTimeoutMs)
    const answers = Array.from(this.#backends.values(), async (backend) => {
      if (!(await answersAt(backend, scope.signal))) throw unreachable
    })
    return await Promise.any(answers).then(
      () => true,
      () => false,
    )
  }
}

const unreachable = new MillraceError('model_connect', 'it does not answer')

async function answersAt(backend: HttpBackend, signal: AbortSignal): Promise<boolean> {
  try {
    await backend.listModels(signal)
    return true
  } catch (error) {
    // It has the key, and serves it later.
    return error instanceof MillraceError && error.code === 'model_rate_limited'
  }
}
