import { MillraceError } from '../../../errors/index.ts'
import { causesOf, type Redaction } from '../../../kit/index.ts'
import { wordsOf } from '../link/call-failure.ts'
import type { ServerEnding } from '../link/server-link.ts'

/** The facts about a failure of a server. All of them go into the error's data. */
export interface FailureFacts {
  readonly server: string
  readonly tool?: string | undefined
  readonly attempt?: number | undefined
  readonly generation: number
  readonly ending?: ServerEnding | undefined
  readonly elapsedMs: number
  readonly mayHaveRun?: boolean | undefined
  readonly reconnectError?: string | undefined
  readonly sessionRestarted?: true | undefined
  /** The HTTP status with which the server refused to be opened. */
  readonly status?: number | undefined
}

/** How much of a foreign message is kept: it may be a whole web page. */
const maxForeignChars = 500

/** Makes the errors of one session: `tool_infra`, with everything that helps to find the reason and no secrets. */
export class SessionErrors {
  readonly #redaction: Redaction

  constructor(redaction: Redaction) {
    this.#redaction = redaction
  }

  infra(message: string, facts: FailureFacts, cause: unknown): MillraceError {
    const { ending, elapsedMs, reconnectError, ...others } = facts
    const data = {
      ...others,
      exitCode: ending?.exitCode,
      signal: ending?.signal,
      stderr: ending?.stderr === undefined ? undefined : this.#redaction.text(ending.stderr),
      elapsedMs: Math.round(elapsedMs),
      cause: this.text(cause),
      reconnectError,
    }
    return new MillraceError('tool_infra', this.#redaction.text(message), {
      data: Object.fromEntries(Object.entries(data).filter(([, value]) => value !== undefined)),
      cause: cause instanceof Error ? this.#redaction.error(cause) : cause,
    })
  }

  /** An error in one line, with its causes: `fetch failed: connect ECONNREFUSED 127.0.0.1:80`. */
  text(error: unknown): string {
    let text = ''
    for (const cause of causesOf(error)) {
      const words = cause instanceof MillraceError ? cause.rawMessage : this.#foreignWords(cause)
      // Many errors repeat their cause in their own words.
      if (!text.includes(words)) text += text === '' ? words : `: ${words}`
    }
    return this.#redaction.text(text || String(error))
  }

  /** The text is redacted before it is cut: a cut could leave half a secret that nothing finds. */
  #foreignWords(error: Error): string {
    // A redacted error of ours has its code before its words.
    const words = this.#redaction.text(wordsOf(error).replace(/^\[\w+\] /, ''))
    return words.length > maxForeignChars ? `${words.slice(0, maxForeignChars)}…` : words
  }
}
