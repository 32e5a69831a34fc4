import { type EngineName, readReportedError, reportedError, type Source } from '../../apis/index.ts'
import type { MillraceError } from '../../errors/index.ts'
import { isJsonObject } from '../../schema/index.ts'
import { isMissing, type ShortAnswer } from './short-request.ts'

/** What an engine does with replies in the making when it is paused: they end first, it aborts them, or they stand still. */
export type EnginePause = 'wait' | 'abort' | 'keep'

interface AskOptions {
  readonly source: Source
  readonly body?: string
  readonly timeoutMs?: number
}

interface EngineControlOptions {
  readonly ask: (path: string, signal: AbortSignal, options: AskOptions) => Promise<ShortAnswer>
  /** The path that those of the server's own routes begin with, and what to say of it. */
  readonly root: string
  readonly source: Source
  /** Aborts when the backend is closed. */
  readonly signal: AbortSignal
  /** What the server is, if its config says so. */
  readonly engine: EngineName | undefined
}

/** SGLang has no mode that waits: whoever wants that pauses it when its replies have ended. */
const sglangModes: Readonly<Record<EnginePause, string>> = { wait: 'in_place', abort: 'abort', keep: 'in_place' }

/** The routes with which an engine is paused and named the version of its weights. Which ones it has is found out once. */
export class EngineControl {
  readonly #options: EngineControlOptions
  #found: Promise<EngineName | 'none'> | undefined

  constructor(options: EngineControlOptions) {
    this.#options = options
  }

  /** Rejects if the server does not answer: that is asked again the next time. */
  kind(): Promise<EngineName | 'none'> {
    this.#found ??= this.#find().catch((error: unknown) => {
      this.#found = undefined
      throw error
    })
    return this.#found
  }

  /** False if the engine cannot be paused. With `wait`, resolves when all of its replies have ended. */
  async pause(mode: EnginePause, signal: AbortSignal, timeoutMs?: number): Promise<boolean> {
    const patience = timeoutMs === undefined ? {} : { timeoutMs }
    const kind = await this.kind()
    if (kind === 'none') return false
    if (kind === 'sglang') {
      return await this.#post('/pause_generation', signal, { ...patience, body: { mode: sglangModes[mode] } })
    }
    // The second parameter is that of vLLM before it had modes.
    const query = mode === 'wait' ? 'mode=wait&wait_for_inflight_requests=true' : `mode=${mode}`
    return await this.#post(`/pause?${query}`, signal, patience)
  }

  async resume(signal: AbortSignal): Promise<boolean> {
    const kind = await this.kind()
    if (kind === 'none') return false
    return await this.#post(kind === 'vllm' ? '/resume' : '/continue_generation', signal)
  }

  async setVersion(version: string, signal: AbortSignal): Promise<boolean> {
    const kind = await this.kind()
    if (kind === 'none') return false
    // Else SGLang would abort all replies, and the weights may have been updated in place.
    const abort = kind === 'sglang' ? { abort_all_requests: false } : {}
    return await this.#post('/update_weight_version', signal, { body: { new_version: version, ...abort } })
  }

  async #find(): Promise<EngineName | 'none'> {
    const { engine } = this.#options
    if (engine !== 'sglang') {
      const paused = await this.#get('/is_paused')
      if (isJsonObject(paused) && 'is_paused' in paused) return 'vllm'
    }
    if (engine === 'vllm') return 'none'
    for (const path of ['/model_info', '/get_model_info']) {
      const info = await this.#get(path)
      if (isJsonObject(info) && 'model_path' in info) return 'sglang'
    }
    return 'none'
  }

  /** Undefined if the server has no such route, or keeps it to itself. */
  async #get(path: string): Promise<unknown> {
    const { ask, root, signal } = this.#options
    const source = this.#sourceOf(path)
    const answer = await ask(root + path, signal, { source })
    if (answer.status < 300) return answer.document
    if (isMissing(answer.status) || answer.status === 401 || answer.status === 403) return undefined
    throw failure(source, answer)
  }

  /** False if the server has no such route. */
  async #post(
    path: string,
    signal: AbortSignal,
    { body = {}, timeoutMs }: { readonly body?: object; readonly timeoutMs?: number } = {},
  ): Promise<boolean> {
    const { ask, root } = this.#options
    const source = this.#sourceOf(path)
    const patience = timeoutMs === undefined ? {} : { timeoutMs }
    const answer = await ask(root + path, signal, { source, body: JSON.stringify(body), ...patience })
    if (isMissing(answer.status)) return false
    const { document } = answer
    if (answer.status < 300 && !(isJsonObject(document) && document['success'] === false)) return true
    throw failure(source, answer)
  }

  #sourceOf(path: string): Source {
    const { source } = this.#options
    return { ...source, url: source.url + path }
  }
}

function failure(source: Source, { status, document }: ShortAnswer): MillraceError {
  return reportedError(source, { status, reported: readReportedError(document) })
}
