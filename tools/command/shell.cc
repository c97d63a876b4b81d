#include "command/shell.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "kvbm.h"

namespace kvbm::command {

namespace {

// Returns every word that may follow `app`.
std::string words_after(const Command& app) {
  std::string words;
  for (const Command& sub : app.commands()) words += sub.name() + " ";
  for (const Option& option : app.options()) {
    for (const std::string& name : option.long_names()) words += "--" + name + " ";
  }
  if (!words.empty()) words.pop_back();
  return words;
}

std::string single_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void bash_cases(const Command& app, const std::string& path, std::string& out) {
  out += "    " + single_quoted(path) + ") words=" + single_quoted(words_after(app)) + " ;;\n";
  for (const Command& sub : app.commands()) bash_cases(sub, path + " " + sub.name(), out);
}

void subcommand_paths(const Command& app, const std::string& path, std::string& out) {
  for (const Command& sub : app.commands()) {
    const std::string longer = path + " " + sub.name();
    out += (out.empty() ? "" : "|") + single_quoted(longer);
    subcommand_paths(sub, longer, out);
  }
}

// Returns the part that bash and zsh share: $path becomes the deepest subcommand typed so far, $words the words that
// may follow.
std::string body(const Command& root, const std::string& typed) {
  std::string paths;
  std::string cases;
  subcommand_paths(root, "kvbm", paths);
  bash_cases(root, "kvbm", cases);
  return "  local path='kvbm' words='' word\n  for word in " + typed + "; do\n    case \"$path $word\" in\n      " +
         paths + ") path=\"$path $word\" ;;\n    esac\n  done\n  case \"$path\" in\n" + cases + "  esac\n";
}

std::string bash_completion(const Command& root) {
  return "# bash completion of kvbm\n_kvbm() {\n" + body(root, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\"") +
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\")\n}\n"
         "complete -o default -F _kvbm kvbm\n";
}

std::string zsh_completion(const Command& root) {
  std::string text = body(root, "\"${(@)words_typed}\"");
  const size_t at = text.find("path='kvbm' words=''");
  text.replace(at, 20, "at='kvbm' next=''");
  // zsh ties $path to $PATH and $words to the command line, so the shared names change.
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{"$path", "$at"}, {" path=\"", " at=\""}, {" words='", " next='"}}) {
    for (size_t p = text.find(from); p != std::string::npos; p = text.find(from, p + to.size())) {
      text.replace(p, from.size(), to);
    }
  }
  return "#compdef kvbm\n_kvbm() {\n  local -a words_typed=(\"${(@)words[2,CURRENT-1]}\")\n" + text +
         "  compadd -- ${=next} || _files\n}\n"
         "if [ \"$funcstack[1]\" = _kvbm ]; then _kvbm \"$@\"; else compdef _kvbm kvbm; fi\n";
}

// A name may be a command's and, further down, another's (`codec`, `bench codec`), so the completions depend on the
// path.
void fish_lines(const Command& app, const std::string& path, std::string& out) {
  const std::string condition = "__kvbm_at \"" + path + "\"";
  for (const Command& sub : app.commands()) {
    out += "complete -c kvbm -f -n " + single_quoted(condition) + " -a " + sub.name() + " -d " +
           single_quoted(sub.description()) + "\n";
    fish_lines(sub, path + " " + sub.name(), out);
  }
  for (const Option& option : app.options()) {
    for (const std::string& name : option.long_names()) {
      out += "complete -c kvbm -n " + single_quoted(condition) + " -l " + name + (option.takes_value() ? " -r" : "") +
             " -d " + single_quoted(option.description()) + "\n";
    }
  }
}

std::string fish_completion(const Command& root) {
  std::string paths;
  subcommand_paths(root, "kvbm", paths);
  std::replace(paths.begin(), paths.end(), '|', ' ');
  std::string out =
      "# fish completion of kvbm\n"
      "# Whether the deepest command typed so far is this one.\n"
      "function __kvbm_at\n"
      "  set -l words (commandline -opc)\n"
      "  set -e words[1]\n"
      "  set -l path kvbm\n"
      "  for word in $words\n"
      "    switch \"$path $word\"\n"
      "      case " +
      paths +
      "\n"
      "        set path \"$path $word\"\n"
      "    end\n"
      "  end\n"
      "  test \"$path\" = \"$argv[1]\"\n"
      "end\n";
  fish_lines(root, "kvbm", out);
  return out;
}

// Escapes text for roff: backslashes and dashes are literal, a line never starts a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

void man_options(const Command& app, std::string& out) {
  for (const Option& option : app.options()) {
    out += ".TP\n\\fB" + roff(option.names()) + "\\fR";
    if (option.takes_value() && !option.is_positional()) out += " \\fI" + roff(option.type_name()) + "\\fR";
    out += "\n" + roff(option.description()) + "\n";
  }
}

void man_commands(const Command& app, const std::string& path, std::string& out) {
  for (const Command& sub : app.commands()) {
    const std::string longer = path + " " + sub.name();
    out += ".SS " + roff(longer) + "\n" + roff(sub.description()) + ".\n";
    man_options(sub, out);
    if (!sub.footer().empty()) out += ".PP\n.nf\n" + roff(sub.footer()) + "\n.fi\n";
    man_commands(sub, longer, out);
  }
}

std::string man_page(const Command& root) {
  const std::string version = std::to_string(KVBM_VERSION_MAJOR) + "." + std::to_string(KVBM_VERSION_MINOR) + "." +
                              std::to_string(KVBM_VERSION_PATCH);
  std::string out = ".TH KVBM 1 \"\" \"kvbm " + version + "\" \"User Commands\"\n.SH NAME\nkvbm \\- " +
                    roff(root.description()) +
                    "\n.SH SYNOPSIS\n.B kvbm\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH OPTIONS\n";
  man_options(root, out);
  out += ".SH COMMANDS\n";
  man_commands(root, "kvbm", out);
  out +=
      ".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nthe work failed; of \\fBkvbm exists\\fR: the pool has no such file\n"
      ".TP\n2\nbad usage or input; the message says what to do\n"
      ".TP\n3\nof \\fBkvbm put\\fR and \\fBkvbm exists\\fR: the pool has a part of the file\n"
      ".TP\n130\nasked to end (Ctrl\\-C) before it was through; what it printed is true of what was done\n";
  return out;
}

// Prints the text plainly, or in JSON as the one field of an object.
int print(const char* field, const std::string& text, const Output& output) {
  const std::string shown = output.json ? nlohmann::json{{field, text}}.dump(2) + "\n" : text;
  std::fputs(shown.c_str(), stdout);
  return kDone;
}

}  // namespace

void add_completion(Registry& registry) {
  auto shell = std::make_shared<std::string>();
  const Command root = registry.root();
  Command app =
      registry.add("completion", "Print the completion script of a shell", [shell, root](const Output& output) {
        const std::string text = *shell == "bash"  ? bash_completion(root)
                                 : *shell == "zsh" ? zsh_completion(root)
                                                   : fish_completion(root);
        return print("script", text, output);
      });
  app.add_option("shell", *shell, "bash, zsh or fish").required().one_of({"bash", "zsh", "fish"});
  app.footer("Example:\n  kvbm completion bash > ~/.local/share/bash-completion/completions/kvbm");
}

void add_man(Registry& registry) {
  const Command root = registry.root();
  Command app = registry.add("man", "Print the manual page as roff",
                             [root](const Output& output) { return print("page", man_page(root), output); });
  app.hide();
}

}  // namespace kvbm::command
