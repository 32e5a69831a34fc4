import { shellQuote } from '../format/shell-quote.ts'

/** The same command with the run's name, so that it continues this run and no other. */
export function resumeCommand(
  run: string,
  { program, words, command = 'eval' }: { program: string; words: readonly string[]; command?: 'eval' | 'fork' },
): string {
  const kept = words.filter((word, index) => {
    const previous = words[index - 1]
    if (previous === '--run' || (previous === '--resume' && word === run)) return false
    return word !== '--new' && !/^--(run|resume)(=|$)/.test(word)
  })
  return `${program} ${command} ${shellQuote([...kept, '--run', run])}`
}
