import type { BackendReply, ReplyEvent } from '../../inference/index.ts'
import type { ItemIds } from '../../schema/index.ts'

/** How one streamed reply is written to its client: text of server-sent events, in order. */
export interface ClientStream {
  /** The reply's id, once it is known. */
  readonly replyId: string | undefined
  /** The backend's ids of the reply's items, if the client was told them. */
  readonly itemIds?: ItemIds | undefined
  /** The text before the first event. */
  start(): string
  /** The text for one event of the backend; empty if the client gets nothing for it. */
  event(event: ReplyEvent): string
  /** The text that tells the client that the reply is complete. Called once the reply is recorded. */
  end(reply: BackendReply): string
}
