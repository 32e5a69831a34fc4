import { toolFormatOf, type ToolFormatName } from '../tools/index.ts'
import type { CallStyle } from './call-style.ts'
import { nativeCalls } from './native-calls.ts'
import { textCalls } from './text-calls.ts'

/** The call style that a run's settings name; native if they name none. */
export function callStyleOf({ toolFormat }: { readonly toolFormat?: ToolFormatName }): CallStyle {
  return toolFormat ? textCalls(toolFormatOf(toolFormat)) : nativeCalls
}
