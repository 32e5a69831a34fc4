import type { ServerEventListener } from './_held-events.ts'
import type { ServerAnswer, ServerCall } from '../session/server-call.ts'
import type { ToolCatalogue } from '../catalogue/tool-catalogue.ts'

/** What the ways of sharing need of an `McpSession`. */
export interface KeptSession {
  readonly catalogue: ToolCatalogue | undefined
  /** Whether a call could be written now. */
  readonly isOpen: boolean
  open(signal?: AbortSignal): Promise<ToolCatalogue>
  /** Another rollout has it from now on: restarts before this are none of its business. */
  beginHold(): void
  call(call: ServerCall): Promise<ServerAnswer>
  close(): Promise<void>
}

/** What a rollout did with a session: made no call, has had all its answers, or gave up a call that the server may still be at. */
export type SessionUse = 'unused' | 'used' | 'busy'

/** A session while one rollout holds it. */
export interface HeldSession {
  readonly session: KeptSession
  /** Called once. What has to end then does so in the background; to close the source waits for it. */
  giveBack(use: SessionUse): void
}

/** One server of an environment, in one of the ways to share it. */
export interface SessionSource extends AsyncDisposable {
  /** Gets ready what can be ready before a rollout asks for it. Never rejects. */
  warm(): Promise<void>
  /** `onEvent` hears what happens to the session while it is held, unless others hold it too. */
  take(signal: AbortSignal, onEvent?: ServerEventListener): Promise<HeldSession>
}
