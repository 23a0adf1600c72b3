# Remembers what an installation puts where, for tools/uninstall.sh: its files, and the folders that were not there before. To be
# included before the first rule that installs something; whoever adds a rule for another folder names that here.
# tests/install/uninstall.sh finds what is left.
file(GLOB_RECURSE install_headers LIST_DIRECTORIES true RELATIVE ${PROJECT_SOURCE_DIR}/include CONFIGURE_DEPENDS include/*)
set(install_folders ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_LIBDIR}/cmake/Quern ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_DOCDIR}
    ${CMAKE_INSTALL_MANDIR}/man1 ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
foreach(header ${install_headers})
    if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/include/${header})
        list(APPEND install_folders ${CMAKE_INSTALL_INCLUDEDIR}/${header})
    endif()
endforeach()

install(CODE "
    set(quern_new_folders \"\")
    foreach(folder ${install_folders})
        set(path \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/\${folder}\")
        if(IS_ABSOLUTE \"\${folder}\")
            set(path \"\$ENV{DESTDIR}\${folder}\")
        endif()
        while(NOT EXISTS \"\${path}\")
            list(APPEND quern_new_folders \"\${path}/\")
            cmake_path(GET path PARENT_PATH path)
        endwhile()
    endforeach()")

# At the end: one list for all places that this build folder has installed into. What a package is made of is in none.
function(install_remember)
    install(CODE "
    set(list \"${PROJECT_BINARY_DIR}/installed.txt\")
    set(known \"\")
    if(EXISTS \"\${list}\")
        file(STRINGS \"\${list}\" known)
    endif()
    list(APPEND known \${quern_new_folders})
    foreach(file \${CMAKE_INSTALL_MANIFEST_FILES})
        list(APPEND known \"\$ENV{DESTDIR}\${file}\")
    endforeach()
    list(REMOVE_DUPLICATES known)
    list(JOIN known \"\\n\" known)
    if(NOT \"\$ENV{DESTDIR}\" MATCHES \"/_CPack_Packages/\")
        file(WRITE \"\${list}\" \"\${known}\\n\")
    endif()")
endfunction()
