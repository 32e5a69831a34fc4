import type { HeavyRewardContext, RawOptions } from '../env/index.ts'
import type { WireError } from '../errors/index.ts'

/** What a reward thread is started with: it loads the environment by itself. */
export interface EnvironmentModule {
  readonly specifier: string
  readonly options: RawOptions
}

/** What a heavy reward looks at. The options are not in it: each thread has its own. */
export type HeavyInput = Omit<HeavyRewardContext<unknown, unknown>, 'options'>

/** A question to a thread; the next one comes only after the answer to the last. */
export interface ToRewardThread {
  readonly component: string
  readonly input: HeavyInput
}

export type FromRewardThread =
  | { readonly kind: 'ready' }
  | { readonly kind: 'start-failed'; readonly error: WireError }
  | { readonly kind: 'scored'; readonly score: number | boolean }
  | { readonly kind: 'failed'; readonly error: WireError }
