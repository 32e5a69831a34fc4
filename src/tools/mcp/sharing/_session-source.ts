import type { ServerEventListener } from './_held-events.ts'
import type { ServerAnswer, ServerCall } from '../session/server-call.ts'
import type { ToolCatalogue } from '../catalogue/tool-catalogue.ts'

/** The parts of an `McpSession` that the ways of sharing need. */
export interface KeptSession {
  readonly catalogue: ToolCatalogue | undefined
  /** Whether a call could be written now. */
  readonly isOpen: boolean
  open(signal?: AbortSignal): Promise<ToolCatalogue>
  /** Another rollout holds the session from now on: earlier restarts do not concern it. */
  beginHold(): void
  call(call: ServerCall): Promise<ServerAnswer>
  close(): Promise<void>
}

/** How a rollout used a session: no call, all calls answered, or a call given up that the server may still work on. */
export type SessionUse = 'unused' | 'used' | 'busy'

/** A session while one rollout holds it. */
export interface HeldSession {
  readonly session: KeptSession
  /** Called once. A session that has to end does so in the background; closing the source waits for it. */
  giveBack(use: SessionUse): void
}

/** One server of an environment, shared in one of the ways. */
export interface SessionSource extends AsyncDisposable {
  /** Prepares what can be ready before a rollout asks for it. Never rejects. */
  warm(): Promise<void>
  /** `onEvent` takes the events of the session while it is held, unless other rollouts hold it too. */
  take(signal: AbortSignal, onEvent?: ServerEventListener): Promise<HeldSession>
}
